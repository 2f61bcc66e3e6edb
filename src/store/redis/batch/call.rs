//! A script call and the requests it answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool_redis::redis::{RedisError, Value};
use tokio::time::Instant;

use super::job::Job;
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::wire::{Reply, no_decision};

/// What became of a call.
pub(super) type Answer = Result<Value, RedisError>;

/// A call's answer that is waited for.
pub(super) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A call on its way, over keys of one slot.
pub(super) struct Call {
    pub(super) jobs: Vec<Job>,
    /// Calls that left together have the same one.
    pub(super) round: u64,
    pub(super) permit: Option<Permit>,
    /// The connection was driven since the call was made: it may have been sent.
    pub(super) may_be_sent: bool,
    /// How many answers had come on the connection before.
    pub(super) answers_before: u64,
    /// When it was made, or something was answered since.
    silent_since: Instant,
    /// When all budgets are over, so that it has failed; settlements are still waited for.
    pub(super) until: Instant,
    /// That was so, and is counted.
    pub(super) is_late: bool,
    answering: Answering,
    /// The answer that was there at once, as where the connection is driven by another task.
    early: Option<Answer>,
}

impl Call {
    /// A call for jobs, `answers_before` of it; nothing is sent before it is polled.
    pub(super) fn new(jobs: Vec<Job>, round: u64, answers_before: u64, answering: Answering) -> Self {
        let began = Instant::now();
        let waiting = jobs.iter().filter(|job| !job.is_settlement()).map(|job| job.timeout.ends).max();
        // Settlements may have waited for longer, and a server that does not answer them either is silent.
        let until = waiting.or_else(|| jobs.first().map(|job| began + job.timeout.budget)).unwrap_or(began);
        Self {
            jobs,
            round,
            permit: None,
            may_be_sent: false,
            answers_before,
            silent_since: began,
            until,
            is_late: false,
            answering,
            early: None,
        }
    }

    /// Whether it has settlements.
    pub(super) fn settles(&self) -> bool {
        self.jobs.iter().any(Job::is_settlement)
    }

    /// Whether nothing was answered on its connection for so long, of which `answers` are the answers.
    pub(super) fn is_in_silence(&self, answers: u64, now: Instant, budget: Duration) -> bool {
        self.answers_before == answers && now.saturating_duration_since(self.silent_since) >= budget
    }

    /// Looks from now on for silence, if something was answered since it last did.
    pub(super) fn listen(&mut self, answers: u64, now: Instant) {
        if self.answers_before != answers {
            (self.answers_before, self.silent_since) = (answers, now);
        }
    }

    /// Whether this answers all of it, and no more.
    #[cold]
    pub(super) fn fits(&self, value: &Value) -> bool {
        read(&self.jobs, value.clone()).is_some_and(|reply| fits(&self.jobs, &reply))
    }

    /// Hands the call to the connection, which is driven next.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(answer) = self.answering.as_mut().poll(cx) {
            self.early = Some(answer);
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        self.early.take().map_or_else(|| self.answering.as_mut().poll(cx), Poll::Ready)
    }

    /// How long the server may be silent.
    pub(super) fn budget(&self) -> Duration {
        self.jobs.first().map_or(Duration::ZERO, |job| job.timeout.budget)
    }

    /// When the next of those who wait gives up, or it has failed, or its connection is silent.
    pub(super) fn next_late(&self) -> Option<Instant> {
        let waiting = self.jobs.iter().filter(|job| job.is_awaited()).map(|job| job.timeout.until);
        if self.is_late { Some(self.silent_since + self.budget()) } else { waiting.chain([self.until]).min() }
    }
}

/// How many checks requests have.
pub(super) fn checks(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.request.size()).sum()
}

/// Reads what a script returned to some requests, if it can be that.
pub(super) fn read(jobs: &[Job], value: Value) -> Option<Reply> {
    match value {
        Value::BulkString(bytes) => Reply::read(bytes.into(), checks(jobs)),
        _ => None,
    }
}

/// Whether a reply answers all of some requests, and no more.
pub(super) fn fits(jobs: &[Job], reply: &Reply) -> bool {
    reply.answers(jobs.iter().map(|job| &job.request))
}

/// Answers each request with its part of what a script returned. Returns whether that was an answer to
/// all of them.
pub(super) fn answer(jobs: Vec<Job>, reply: Option<Reply>, failure: &mut Option<Error>) -> bool {
    let Some(mut reply) = reply else {
        fail(jobs, failure.get_or_insert_with(no_decision));
        return false;
    };
    let mut is_whole = true;
    for job in jobs {
        let answered = reply.take(&job.request).ok_or_else(|| failure.get_or_insert_with(no_decision).shared());
        is_whole &= answered.is_ok();
        job.answer(answered);
    }
    is_whole && reply.is_empty()
}

/// Answers each request with the error.
#[cold]
pub(super) fn fail(jobs: Vec<Job>, error: &Error) {
    // One line a call: clients must not fill the log while Redis is away.
    let settlements = jobs.iter().filter(|job| job.is_settlement()).count();
    if settlements > 0 {
        tracing::warn!(error = format!("{error:#}"), settlements, "settlements may not have arrived");
    }
    for job in jobs {
        job.answer(Err(error.shared()));
    }
}
