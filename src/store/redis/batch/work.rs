//! A round of work on a lane: its order, and making calls of queued jobs.
//!
//! The order matters for latency: replies are read, the next calls are made and written, and only
//! then the jobs of the replies are completed. Completing wakes callers, which occupy the threads
//! while Redis would wait for the next call.
//!
//! How a call is made: a batch is taken from the queue, not larger than `Settings::batch_size` and
//! than makes the calls in flight alike in size; it is cut into parts by slot, and each part
//! becomes a call of the same round. At most `CALLS` rounds are in flight, so that Redis and the
//! process work at the same time, and jobs that come meanwhile form the next batch. Under little
//! load a job is thus sent at once and alone; under much load batches grow by themselves.

#[cfg(test)]
mod tests;

use std::task::Context;

use deadpool_redis::redis::aio::MultiplexedConnection;

use super::call::{self, Call, CallFuture, checks};
use super::core::{Core, Line, Next};
use super::job::Job;
use super::lane::{Lane, Settings};
use super::line::CONNECT_PAUSE;
use crate::core::Error;
use crate::store::clock::micros;
use crate::store::redis::connections;
use crate::store::redis::wire::{Packed, Way};

/// The limit of rounds in flight on a connection; jobs that come meanwhile leave in the next.
pub(super) const CALLS: usize = 2;

/// The number of checks that is not worth two calls.
const LEAST: usize = 4;

impl Core {
    /// Does all the work that can be done now, and returns whether to continue at once.
    ///
    /// After `calm`, everything that another thread may have changed is looked at once more, so
    /// nothing that happened before it is lost.
    pub(super) fn work(&mut self, lane: &Lane, cx: &mut Context<'_>) -> Next {
        let mut completed = self.receive(lane, cx);
        self.send(lane, cx);
        // What happened so far was done here, or is looked at below.
        lane.turns.calm();
        completed.append(&mut self.receive(lane, cx));
        // The next call was written above: completing jobs wakes tasks, which delay what comes after it.
        self.complete(lane, completed);
        self.connect(lane, cx);
        self.receive_late(lane, cx);
        self.look_at_the_clock(lane, cx);
        self.rest(lane);
        if std::mem::take(&mut self.has_more) { Next::Work } else { Next::Rest }
    }

    /// Notes in the queue when the lane looks at it again, by which pushing threads decide whether to
    /// wake it.
    ///
    /// What was queued since the last look may rely on a reply that has come meanwhile, or on a
    /// timer that has gone off: in these cases another round follows.
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

    /// Makes calls of queued jobs, until two rounds are in flight or the queue is empty.
    fn send(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        while let Some(jobs) = self.next_batch(lane) {
            self.round += 1;
            for jobs in parts(jobs) {
                self.call(lane, jobs, cx);
            }
        }
    }

    /// Takes the jobs of the next round; `None` without a connection, with `CALLS` rounds in
    /// flight, or without jobs.
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

    /// Makes a call of jobs of one slot. It uses the permit of the connection attempt if that is
    /// unused and still counts, otherwise one of its own; without one the jobs fail or wait.
    ///
    /// An attempt may have begun before the breaker opened: a call with its permit would show nobody that the server
    /// replies again.
    fn call(&mut self, lane: &Lane, mut jobs: Vec<Job>, cx: &mut Context<'_>) {
        let Line::Up(connection, attempt_permit) = &mut self.line else { return };
        let unused = attempt_permit.take().filter(|permit| lane.server.counts(*permit));
        let permit = match unused.map_or_else(|| lane.server.acquire(), |permit| Ok(Some(permit))) {
            Ok(permit) => permit,
            Err(error) => return self.without_permit(jobs, &error),
        };
        let call_future = call_future(&lane.settings, connection.shared.handle.clone(), &mut jobs);
        let mut call = Call::new(jobs, self.round, connection.shared.replies(), call_future);
        call.permit = permit;
        self.alarm.set(call.until);
        call.start(cx);
        connection.calls.push(call);
    }

    /// Fails decisions, as the server's breaker permits no call. Settlements wait and are tried
    /// again after `CONNECT_PAUSE`.
    fn without_permit(&mut self, jobs: Vec<Job>, error: &Error) {
        let (settlements, decisions): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_settlement);
        call::fail(decisions, error);
        if !settlements.is_empty() {
            self.retry_later(settlements, CONNECT_PAUSE);
        }
    }
}

/// Returns the future of a call's outcome, and puts the jobs in the order of the reply. Nothing is
/// sent before it is polled.
fn call_future(settings: &Settings, mut connection: MultiplexedConnection, jobs: &mut [Job]) -> CallFuture {
    Packed::sort(jobs);
    let way = jobs.first().map_or(Way::Plain, |job| job.way);
    let now = settings.clock.as_deref().map(|clock| micros(clock.wall()).to_string()).unwrap_or_default();
    let (program, call) = Packed::of(jobs).command(settings.calls, &now);
    Box::pin(async move { connections::call(program, &mut connection, &call, way).await })
}

/// Cuts a batch into calls: each of jobs of one slot that are sent the same way, in their order,
/// and each job that must be alone by itself. A batch of one part, which is usual, is neither
/// sorted nor copied.
fn parts(mut jobs: Vec<Job>) -> impl Iterator<Item = Vec<Job>> {
    let part = |job: &Job| (job.slot, job.way, job.is_alone);
    let is_one = jobs.iter().all(|job| part(job) == part(&jobs[0]) && !job.is_alone);
    let mut parts: Vec<Vec<Job>> = Vec::new();
    if !is_one {
        jobs.sort_by_key(part);
        for job in jobs.drain(..) {
            match parts.last_mut() {
                Some(last) if !job.is_alone && part(&last[0]) == part(&job) => last.push(job),
                _ => parts.push(vec![job]),
            }
        }
    }
    let whole = Some(jobs).filter(|_| is_one);
    whole.into_iter().chain(parts)
}

/// Returns how many checks the next round may have, with `sent` in flight and `waiting` in the
/// queue: all that wait if nothing is in flight, else half of both together, but at least `LEAST`.
///
/// Calls in flight should be alike in size: a short one behind a long one ends before the callers
/// of the long one can call again, and then the server waits for the process.
fn share(sent: usize, waiting: usize) -> usize {
    if sent == 0 { waiting } else { (sent + waiting).div_ceil(CALLS).max(LEAST) }
}
