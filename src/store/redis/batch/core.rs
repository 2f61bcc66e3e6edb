//! The work on a lane, and making calls of what waits.

use std::task::Context;
use std::time::Duration;

use deadpool_redis::redis::RedisError;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::call::{self, Call, checks};
use super::connection::Connection;
use super::job::Job;
use super::lane::Lane;
use super::late::Lateness;
use super::line::{CONNECT_PAUSE, Line};
use super::server::Redirected;
use super::settings::{CALLS, parts, share};
use crate::Error;
use crate::store::redis::connections::failed;

/// Before keys of a slot that is on its way to another server are asked for again.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// What one runner at a time works on.
pub(super) struct Core {
    pub(super) line: Line,
    /// Connections that are only polled for late answers.
    pub(super) retired: SmallVec<[Connection; 1]>,
    /// Jobs that are asked again at a time.
    pub(super) later: Vec<(Instant, Vec<Job>)>,
    /// When it connects again for settlements, which still wait.
    pub(super) connect_again: Option<Instant>,
    pub(super) alarm: Alarm,
    round: u64,
    /// What those receive who are late now.
    pub(super) late: Lateness,
    /// When such a failure of the server was last counted.
    pub(super) silent: Option<Instant>,
    /// Something can be sent at once.
    pub(super) has_more: bool,
}

/// What a runner does after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits until something happens.
    Rest,
    /// It goes on.
    Work,
}

impl Core {
    pub(super) fn new() -> Self {
        let (retired, later) = (SmallVec::new(), Vec::new());
        Self {
            line: Line::Down,
            retired,
            later,
            connect_again: None,
            alarm: Alarm::default(),
            round: 0,
            late: Lateness::default(),
            silent: None,
            has_more: false,
        }
    }

    /// Does all that can be done now.
    pub(super) fn work(&mut self, lane: &Lane, cx: &mut Context<'_>) -> Next {
        let mut answered = self.receive(lane, cx);
        self.send(lane, cx);
        // What happened so far was done here, or is looked at below.
        lane.turns.calm();
        answered.extend(self.receive(lane, cx));
        // The next call was written above: answering wakes tasks, which delay what comes after it.
        self.answer(lane, answered);
        self.connect(lane, cx);
        self.receive_late(lane, cx);
        self.look_at_the_clock(lane, cx);
        self.rest(lane);
        if std::mem::take(&mut self.has_more) { Next::Work } else { Next::Rest }
    }

    /// Says in the queue when it is looked at again.
    fn rest(&mut self, lane: &Lane) {
        let is_busy = match &self.line {
            Line::Up(connection, _) => connection.rounds() >= CALLS,
            Line::Connecting(..) => true,
            Line::Down => false,
        };
        let (is_waiting, first_late) = lane.turns.with(|queue| {
            queue.is_busy = is_busy;
            queue.watched_until = self.alarm.until();
            (!queue.is_empty(), queue.first_late())
        });
        // What came since it was looked at may have been taken to wait for something that is over.
        let is_watched = first_late.is_none_or(|first| self.alarm.until().is_some_and(|until| until <= first));
        self.has_more |= is_waiting && (!is_watched || !is_busy && matches!(self.line, Line::Up(..)));
    }

    /// Whether a call is on its way, or will be; of connections that are not used any more, one with settlements.
    pub(super) fn is_busy(&self) -> bool {
        let calls = matches!(&self.line, Line::Up(connection, _) if !connection.calls.is_empty());
        let settles = |connection: &Connection| connection.calls.iter().any(Call::settles);
        let is_settling = self.retired.iter().any(settles);
        calls || is_settling || !self.later.is_empty() || matches!(self.line, Line::Connecting(..))
    }

    /// Makes calls with what waits, unless two are on their way.
    fn send(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        while let Some(jobs) = self.next_batch(lane) {
            self.round += 1;
            for jobs in parts(jobs) {
                self.call(lane, jobs, cx);
            }
        }
    }

    /// Takes what the next call is made of.
    fn next_batch(&self, lane: &Lane) -> Option<Vec<Job>> {
        let Line::Up(connection, _) = &self.line else { return None };
        if connection.rounds() >= CALLS {
            return None;
        }
        let sent = connection.calls.iter().map(|call| checks(&call.jobs)).sum::<usize>();
        let jobs = lane.turns.with(|queue| {
            queue.is_busy = false;
            queue.take(share(sent, queue.checks()).min(lane.settings.batch_size))
        });
        Some(jobs).filter(|jobs| !jobs.is_empty())
    }

    /// Makes a call with jobs of one slot.
    fn call(&mut self, lane: &Lane, mut jobs: Vec<Job>, cx: &mut Context<'_>) {
        let Line::Up(connection, leave) = &mut self.line else { return };
        let permit = match leave.take().map_or_else(|| lane.server.ask(), |permit| Ok(Some(permit))) {
            Ok(permit) => permit,
            Err(error) => return self.not_asked(jobs, &error),
        };
        let answering = lane.settings.call(connection.shared.handle.clone(), &mut jobs);
        let mut call = Call::new(jobs, self.round, connection.shared.answers(), answering);
        call.permit = permit;
        self.alarm.set(call.until);
        call.start(cx);
        connection.calls.push(call);
    }

    /// Fails decisions that the server is not asked for; settlements wait until it is asked again.
    fn not_asked(&mut self, jobs: Vec<Job>, error: &Error) {
        let (settlements, decisions): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_settlement);
        call::fail(decisions, error);
        if !settlements.is_empty() {
            self.ask_later(settlements, CONNECT_PAUSE);
        }
    }

    /// Fails what the server refused, unless it is to be asked for elsewhere, or again.
    pub(super) fn refuse(&mut self, lane: &Lane, jobs: Vec<Job>, refusal: &RedisError) {
        match lane.server.redirect(jobs, refusal) {
            Redirected::Elsewhere => {}
            Redirected::Later(jobs) => self.ask_alone(lane, jobs),
            Redirected::Failed(jobs) => call::fail(jobs, &lane.server.error(failed(refusal))),
        }
    }

    /// Asks again for jobs of a slot that is on its way to another server: each alone, for one must not
    /// fail with another one, and not again at once.
    fn ask_alone(&mut self, lane: &Lane, mut jobs: Vec<Job>) {
        for job in &mut jobs {
            job.is_alone = true;
        }
        if jobs.len() > 1 {
            lane.turns.with(|queue| queue.put_back(jobs.into_iter()));
            self.has_more = true;
            return;
        }
        self.ask_later(jobs, SLOT_PAUSE);
    }

    /// Asks again after a pause, or ends the wait in time of callers who have less time than that.
    fn ask_later(&mut self, jobs: Vec<Job>, pause: Duration) {
        let ends = jobs.iter().filter(|job| job.is_awaited()).map(|job| job.patience.until);
        let again = ends.fold(Instant::now() + pause, Instant::min);
        self.alarm.set(again);
        self.later.push((again, jobs));
    }
}
