//! What a lane does at a time: it times out callers and calls, sends again, and connects again.
//!
//! All times of a lane are in one alarm, which goes off at the earliest, or before. Each part then
//! takes what is due by now and returns when its next is due, and the alarm is set to the earliest
//! of these.
//!
//! There are three kinds of timeout, with different conclusions about the server:
//!
//! - *A caller's deadline*, earlier than its budget: it receives an error, and the server's breaker
//!   counts nothing.
//! - *A budget of a job that was not sent*: it waited for the connection or for calls in flight.
//!   The server's breaker counts one failure for all that waited through the same silence.
//! - *A call's budget*: the server was sent the call and did not reply. Counted likewise; the call
//!   stays in flight, as its reply contains what to refund.
//!
//! A connection is retired once it received no reply at all for a whole budget: one that is slow,
//! but replies, is kept.

use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{self, Call};
use super::core::{Core, Line};
use super::job::Job;
use super::lane::Lane;
use super::line::lost_connection;
use super::timeout::is_same;
use crate::store::redis::connections::Failure;

impl Core {
    /// Does what is due, if the alarm went off, and sets the alarm anew. The loop ends as each turn
    /// handles all that is due and only later times are left.
    pub(super) fn look_at_the_clock(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        if let Some(first) = lane.turns.with(|queue| queue.first_late()) {
            self.alarm.set(first);
        }
        while self.alarm.goes_off(cx) {
            let now = Instant::now();
            let (again, connect) = (self.retry_due(lane, now), self.connect_again(now));
            let next = [again, connect, self.late_jobs(lane, now), self.late_calls(lane, now)];
            if let Some(next) = next.into_iter().flatten().min() {
                self.alarm.set(next);
            }
        }
    }

    /// Has the lane connect again if that is due. Returns when it is due otherwise.
    fn connect_again(&mut self, now: Instant) -> Option<Instant> {
        let due = self.connect_again.take_if(|again| *again <= now);
        self.has_more |= due.is_some();
        self.connect_again
    }

    /// Puts jobs whose pause has ended back to the front of the queue, unless another server has
    /// their slot by now. Returns when the next are due.
    fn retry_due(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(again, _)| *again <= now);
        self.later = later;
        let due: Vec<(Instant, Vec<Job>)> = due;
        let due = due.into_iter().flat_map(|(_, jobs)| jobs).filter(|job| !job.is_idle());
        let here: Vec<Job> = due.filter_map(|job| lane.server.again(job)).collect();
        self.has_more |= !here.is_empty();
        lane.turns.with(|queue| queue.put_back(here.into_iter()));
        self.later.iter().map(|(again, _)| *again).min()
    }

    /// Times out queued jobs and borrowers. Returns when the next one is due.
    ///
    /// The timeout counts as a failure of the server only if a job among them was waiting for the
    /// server for a whole budget: not one that waited for a slot, nor a settlement, nor a deadline.
    fn late_jobs(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        let (jobs, borrowers, next) = lane.turns.with(|queue| {
            let (jobs, borrowers) = queue.take_late(now);
            (jobs, borrowers, queue.first_late())
        });
        if let Some(timeout) = jobs.iter().find(|job| !job.is_idle()).map(|job| job.timeout) {
            let error = self.late.error(now, timeout);
            // A job that waits for a slot being moved does not wait for this server, and one with less time than
            // the budget did not wait for long. Settlements may have waited for a breaker.
            let waits = |job: &&Job| !job.is_alone && !job.is_settlement() && job.timeout.ends <= now;
            let waited = jobs.iter().find(waits);
            if let Some(budget) = waited.map(|job| job.timeout.budget) {
                self.is_waited_for(lane, now, budget);
            }
            call::fail(jobs, &lane.server.error(error).unsent());
        }
        for borrower in borrowers {
            let _ = borrower.sender.send(Err(self.late.error(now, borrower.timeout)));
        }
        next
    }

    /// Counts that callers waited for a whole budget without being sent, and retires the connection
    /// if it is silent: the call they waited behind may be too recent to be late itself.
    fn is_waited_for(&mut self, lane: &Lane, now: Instant, budget: Duration) {
        if self.is_silent_anew(now, budget) {
            lane.server.waited();
        }
        // A call that others wait behind may have been made just now, when they had waited already.
        let Line::Up(connection, _) = &self.line else { return };
        let (calls, replies) = (&connection.calls, connection.shared.replies());
        if calls.iter().any(|call| call.is_in_silence(replies, now, budget)) {
            self.retire(lane);
        }
    }

    /// Times out callers of calls in flight, and calls. Returns when the next is due. Retires the
    /// connection if a late call is still in silence.
    fn late_calls(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        self.late_of_retired(lane, now);
        let Line::Up(connection, _) = &mut self.line else { return self.retired_until() };
        let mut calls = std::mem::take(&mut connection.calls);
        let (replies, mut is_stuck) = (connection.shared.replies(), false);
        for call in &mut calls {
            if !call.is_late {
                self.late_callers(lane, call, now);
            }
            // A call that was sent just before it was late shows nothing about the connection yet.
            is_stuck |= call.is_late && call.is_in_silence(replies, now, call.budget());
            if call.is_late {
                call.listen(replies, now);
            }
        }
        let next = calls.iter().filter(|_| !is_stuck).filter_map(Call::next_late).min();
        if let Line::Up(connection, _) = &mut self.line {
            connection.calls = calls;
        }
        if is_stuck {
            self.retire(lane);
        }
        [next, self.retired_until()].into_iter().flatten().min()
    }

    /// Times out what is in flight on retired connections, and closes those whose time is over.
    fn late_of_retired(&mut self, lane: &Lane, now: Instant) {
        for mut connection in std::mem::take(&mut self.retired) {
            for call in connection.calls.iter_mut().filter(|call| !call.is_late) {
                self.late_callers(lane, call, now);
            }
            if connection.polled_until.is_none_or(|until| until > now) {
                self.retired.push(connection);
            } else {
                connection.fail(&*lane.server, lost_connection(None));
            }
        }
    }

    /// Returns when a retired connection needs attention next.
    fn retired_until(&self) -> Option<Instant> {
        let calls = self.retired.iter().flat_map(|connection| &connection.calls).filter(|call| !call.is_late);
        let calls = calls.filter_map(Call::next_late);
        let ends = self.retired.iter().filter_map(|connection| connection.polled_until);
        calls.chain(ends).min()
    }

    /// Times out the callers of a call that are late by now, with one error. If the call's budgets
    /// have all run out, it is reported as failed: as a new failure, or as one that was counted
    /// with another.
    fn late_callers(&mut self, lane: &Lane, call: &mut Call, now: Instant) {
        let mut jobs = call.jobs.iter_mut().filter(|job| job.is_awaited() && job.timeout.until <= now).peekable();
        if let Some(timeout) = jobs.peek().map(|job| job.timeout) {
            let error = lane.server.error(self.late.error(now, timeout));
            jobs.for_each(|job| job.time_out(|| error.shared()));
        }
        if call.until <= now {
            call.is_late = true;
            let is_new = call.jobs.iter().any(|job| !job.is_alone) && self.is_silent_anew(now, call.budget());
            let failure = if is_new { Failure::Late } else { Failure::Unsent };
            lane.server.report(call.permit.take(), Some(&failure));
        }
    }

    /// Returns whether a silence that is noticed now is another failure than the one counted last;
    /// if so it is noted. Timeouts within a quarter of a budget are one.
    fn is_silent_anew(&mut self, now: Instant, budget: Duration) -> bool {
        let is_new = self.silent.is_none_or(|since| !is_same(since, now, budget));
        if is_new {
            self.silent = Some(now);
        }
        is_new
    }
}
