//! A call of the script, and the requests whose replies it carries.
//!
//! A call is made of one or more jobs whose keys are in one slot, and is in flight from
//! `Call::start` until its reply is read or its connection is given up. It has what is needed to
//! judge both later: whether the connection was driven since (so that it may have been sent), how
//! many replies the connection had received before, and until when its callers can wait.
//!
//! The free functions below read a reply and send each job its part. They are the only place where
//! jobs of a call are completed, so that all jobs of a failed call receive the same error, which
//! breakers and metrics then count once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool_redis::redis::{RedisError, Value};
use tokio::time::Instant;

use super::job::Job;
use crate::core::{Error, Lines};
use crate::store::breaker::Permit;
use crate::store::redis::wire::{Reply, no_decision};

/// The outcome of a call: the script's reply, unread, or the error of the client library.
pub(super) type CallResult = Result<Value, RedisError>;

/// A future of a call's result. It may contain several round trips, if the script has to be
/// loaded.
pub(super) type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A call in flight, over keys of one slot.
pub(super) struct Call {
    /// The requests of the call, in the order in which the reply has their parts. Not empty.
    pub(super) jobs: Vec<Job>,
    /// The round in which the call was made. A batch over several slots is several calls of one
    /// round, and rounds in flight are what is limited.
    pub(super) round: u64,
    /// The permit of the server's circuit breaker, or `None` where the server has none, and once
    /// the outcome has been reported.
    pub(super) permit: Option<Permit>,
    /// Whether the connection was driven since the call was made without having ended: the call may
    /// have been sent. A call without this mark can be sent again on another connection.
    pub(super) may_be_sent: bool,
    /// The number of replies received on the connection when the call was made, or when silence was
    /// last looked for. A larger number means that the connection works.
    pub(super) replies_before: u64,
    /// When the call was made, or when `listen` noticed that the connection had received replies
    /// since.
    silent_since: Instant,
    /// When the budgets of all its decisions have run out, so that the call counts as failed. Its
    /// settlements still wait for the reply then. For a call of settlements only it is the start
    /// plus one budget.
    pub(super) until: Instant,
    /// Whether `until` has passed and the failure was reported to the server's breaker.
    pub(super) is_late: bool,
    /// The future of the outcome.
    future: CallFuture,
    /// The outcome that was ready when the call was started, as where another task drives the
    /// connection. It is kept here, as a future must not be polled again once it is ready.
    early: Option<CallResult>,
}

impl Call {
    /// Makes a call of `jobs`, on a connection that has received `replies_before` replies. Nothing
    /// is sent before `start`.
    ///
    /// `jobs` is not empty and of one slot. The caller sets `permit` afterwards.
    pub(super) fn new(jobs: Vec<Job>, round: u64, replies_before: u64, future: CallFuture) -> Self {
        let began = Instant::now();
        let waiting = jobs.iter().filter(|job| !job.is_settlement()).map(|job| job.timeout.ends).max();
        // Settlements may have waited for longer, and a server that does not reply to them either is silent.
        let until = waiting.or_else(|| jobs.first().map(|job| began + job.timeout.budget)).unwrap_or(began);
        Self {
            jobs,
            round,
            permit: None,
            may_be_sent: false,
            replies_before,
            silent_since: began,
            until,
            is_late: false,
            future,
            early: None,
        }
    }

    /// Returns whether the call contains a settlement. A connection with such a call keeps a lane
    /// busy even after the connection was replaced.
    pub(super) fn settles(&self) -> bool {
        self.jobs.iter().any(Job::is_settlement)
    }

    /// Returns whether its connection, which has received `replies` replies by now, received none
    /// for at least `budget`: since the call was made, or since `listen` last noticed one.
    pub(super) fn is_in_silence(&self, replies: u64, now: Instant, budget: Duration) -> bool {
        self.replies_before == replies && now.saturating_duration_since(self.silent_since) >= budget
    }

    /// Starts the time of silence anew at `now` if the connection received replies since the last
    /// look.
    ///
    /// Only called for late calls: a call within its budget needs no second look.
    pub(super) fn listen(&mut self, replies: u64, now: Instant) {
        if self.replies_before != replies {
            (self.replies_before, self.silent_since) = (replies, now);
        }
    }

    /// Returns whether `value` is a reply to exactly the requests of this call. The value is read
    /// for that and dropped, so this is only for replies that are suspect: those received
    /// together with an error or with another reply.
    #[cold]
    pub(super) fn fits(&self, value: &Value) -> bool {
        read(&self.jobs, value.clone()).is_some_and(|reply| fits(&self.jobs, &reply))
    }

    /// Polls the outcome for the first time, which hands the command to the connection. The
    /// connection is driven right after; only then the call is on its way. An outcome that is ready
    /// already is kept for `poll`.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(result) = self.future.as_mut().poll(cx) {
            self.early = Some(result);
        }
    }

    /// Polls the outcome. The one that `start` kept comes first. After it was ready, the call must
    /// not be polled again: the connection removes it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
        self.early.take().map_or_else(|| self.future.as_mut().poll(cx), Poll::Ready)
    }

    /// Returns how long the server may be silent: the budget of the first job, as all jobs of a
    /// store have the same.
    pub(super) fn budget(&self) -> Duration {
        self.jobs.first().map_or(Duration::ZERO, |job| job.timeout.budget)
    }

    /// Returns when the call needs attention next.
    ///
    /// - Before `until`: when the first of its callers times out, or at `until`.
    /// - After it: when the connection will have been silent for a budget.
    pub(super) fn next_late(&self) -> Option<Instant> {
        let waiting = self.jobs.iter().filter(|job| job.is_awaited()).map(|job| job.timeout.until);
        if self.is_late { Some(self.silent_since + self.budget()) } else { waiting.chain([self.until]).min() }
    }
}

/// Returns how many checks some requests have together. Batches are measured in checks, not in
/// requests.
pub(super) fn checks(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.request.size()).sum()
}

/// Reads what the script returned for `jobs`. Returns `None` if it cannot be that: not a bulk
/// string, or too short for that many checks. Whether each part is whole shows only when it is
/// taken (see `fits` and `complete`).
pub(super) fn read(jobs: &[Job], value: Value) -> Option<Reply> {
    match value {
        Value::BulkString(bytes) => Reply::read(bytes.into(), checks(jobs)),
        _ => None,
    }
}

/// Returns whether a reply has a whole part for each of `jobs`, and nothing more.
pub(super) fn fits(jobs: &[Job], reply: &Reply) -> bool {
    reply.fits(jobs.iter().map(|job| &job.request))
}

/// Completes each job with its part of the reply, in order. Returns whether the reply had a whole
/// part for each and nothing more; if not, the connection is out of step and must not be used
/// again.
///
/// Jobs without a part receive `failure`, which is set to the error of an unreadable reply unless
/// it is set already: several calls that fail for one reason share one error.
pub(super) fn complete(jobs: Vec<Job>, reply: Option<Reply>, failure: &mut Option<Error>) -> bool {
    let Some(mut reply) = reply else {
        fail(jobs, failure.get_or_insert_with(no_decision));
        return false;
    };
    let mut is_whole = true;
    for job in jobs {
        let part = reply.take(&job.request).ok_or_else(|| failure.get_or_insert_with(no_decision).shared());
        is_whole &= part.is_ok();
        job.complete(part);
    }
    is_whole && reply.is_empty()
}

/// Completes all `jobs` with the same error. Settlements among them are logged once for the whole
/// call, as their callers seldom wait for the outcome.
#[cold]
pub(super) fn fail(jobs: Vec<Job>, error: &Error) {
    static UNCERTAIN: Lines = Lines::ten();
    let settlements = jobs.iter().filter(|job| job.is_settlement()).count();
    if settlements > 0 {
        UNCERTAIN.log("", |more| {
            let error = format!("{error:#}");
            tracing::warn!(code = "settlement_uncertain", error, settlements, more, "settlements may not have arrived");
        });
    }
    for job in jobs {
        job.complete(Err(error.shared()));
    }
}
