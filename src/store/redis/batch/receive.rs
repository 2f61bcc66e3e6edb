//! Replies: the call that each belongs to, and whether it can be a reply to what was sent.
//!
//! Outcomes of calls that the connection has ready come in; completed jobs, retries and reports
//! to the server's breaker go out. The file decides for each outcome:
//!
//! | outcome | what happens |
//! | --- | --- |
//! | a reply that fits | each job receives its part |
//! | an error of the server | the jobs fail, or move to another server, or are sent again alone |
//! | an error of a replica | as above, and the connection is retired |
//! | the connection ended | all calls fail as one; what was surely not sent is sent again |
//! | a reply that does not fit | likewise, without sending again: the connection is out of step |
//!
//! Redis replies in order and without identifiers, so one reply too many or too few shifts all
//! later ones to the wrong calls. For that reason a reply that cannot be one to its call ends the
//! connection, and replies received together with it are not used either.
//!
//! A reply counts as a sign of life (`note_reply`) whatever its content. Each call is reported to
//! the breaker once.

use std::task::Context;
use std::time::Duration;

use deadpool_redis::redis::{RedisError, Value};
use tokio::time::Instant;

use super::call::{self, Call, CallResult};
use super::connection::Connection;
use super::core::{Core, Line};
use super::job::Job;
use super::lane::Lane;
use super::line::lost_connection;
use super::server::Redirected;
use super::timeout::Lateness;
use crate::core::Error;
use crate::store::redis::connections::{Failure, failed, is_cut, is_of_the_connection};
use crate::store::redis::wire::Reply;

/// The pause before a job is sent again whose slot is being moved.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// Calls that are complete, with their outcomes, in the order in which they were made.
type Completed = Vec<(Call, CallResult)>;

impl Core {
    /// Writes what was queued on the connection and reads what has come. Returns the jobs with
    /// their replies, which `complete` completes after the next calls were written.
    ///
    /// Calls that failed are handled here. Calls are marked as perhaps sent if the connection
    /// still works.
    pub(super) fn receive(&mut self, lane: &Lane, cx: &mut Context<'_>) -> Vec<(Vec<Job>, Value)> {
        let Line::Up(connection, _) = &mut self.line else { return Vec::new() };
        let (has_ended, mut completed) = (connection.drive(cx), connection.completed(cx));
        if has_ended || completed.iter().any(|(_, result)| result.is_err()) {
            completed = self.keep_valid(lane, completed, has_ended);
        } else {
            connection.calls.iter_mut().for_each(|call| call.may_be_sent = true);
        }
        completed.into_iter().filter_map(|(call, result)| self.finish(lane, call, result)).collect()
    }

    /// Gives up the connection if it has ended or a call was lost with it. Returns the calls whose outcomes are valid.
    ///
    /// If the connection has ended while exactly one call was not marked as perhaps sent, that one was surely not sent.
    #[cold]
    fn keep_valid(&mut self, lane: &Lane, completed: Completed, has_ended: bool) -> Completed {
        let Line::Up(connection, _) = &mut self.line else { return completed };
        let fresh = connection.calls.iter().chain(completed.iter().map(|(call, _)| call));
        let unsent = has_ended && fresh.filter(|call| !call.may_be_sent).count() == 1;
        connection.calls.iter_mut().for_each(|call| call.may_be_sent |= !has_ended);
        let (mut lost, mut ended) = (Vec::new(), Vec::new());
        let is_in_step = are_in_step(lane, &completed);
        for (call, result) in completed {
            match result {
                Err(error) if lane.server.is_lost(&error) => lost.push((call, Some(error))),
                _ if !is_in_step => lost.push((call, None)),
                result => ended.push((call, result)),
            }
        }
        if has_ended || !lost.is_empty() {
            lost.extend(connection.calls.drain(..).map(|call| (call, None)));
            self.lose(lane, lost, unsent, None);
        }
        ended
    }

    /// Ends a call that has an outcome. Returns its jobs and their reply; an error is handled here.
    fn finish(&mut self, lane: &Lane, call: Call, result: CallResult) -> Option<(Vec<Job>, Value)> {
        let Call { jobs, permit, .. } = call;
        match result {
            Ok(value) => {
                self.note_reply();
                lane.server.report(permit, None);
                Some((jobs, value))
            }
            Err(error) => {
                if is_of_the_connection(&error) {
                    self.retire(lane);
                } else {
                    self.note_reply();
                }
                self.refuse(lane, jobs, &error);
                lane.server.report(permit, Some(&Failure::Error(error)));
                None
            }
        }
    }

    /// Notes that the server replied: the silence, if there was one, is over.
    fn note_reply(&mut self) {
        (self.late, self.silent) = (Lateness::default(), None);
        if let Line::Up(connection, _) = &self.line {
            connection.shared.count_reply();
        }
    }

    /// Completes the jobs of calls, in the order of their replies.
    ///
    /// Several replies are first checked all together, and none is used unless all fit: one that
    /// does not fit may be the reply to the call before. Then the connection is given up. However
    /// many calls such a failure ends, it has one error.
    pub(super) fn complete(&mut self, lane: &Lane, completed: Vec<(Vec<Job>, Value)>) {
        if completed.is_empty() {
            return;
        }
        let read = |(jobs, value): (Vec<Job>, Value)| {
            let reply = call::read(&jobs, value);
            (jobs, reply)
        };
        let replies: Vec<(Vec<Job>, Option<Reply>)> = completed.into_iter().map(read).collect();
        // As in `are_in_step`, where there was no error.
        let is_whole =
            |(jobs, reply): &(Vec<Job>, Option<Reply>)| reply.as_ref().is_some_and(|reply| call::fits(jobs, reply));
        let mut is_in_step = replies.len() < 2 || replies.iter().all(is_whole);
        // It is one failure, however many jobs receive it.
        let mut failure = None;
        for (jobs, reply) in replies {
            if is_in_step {
                is_in_step = call::complete(jobs, reply, &mut failure);
            } else {
                let error = failure.get_or_insert_with(|| lost_connection(None)).shared();
                call::fail(jobs, &lane.server.error(error));
            }
        }
        if let (false, Line::Up(connection, _)) = (is_in_step, &mut self.line) {
            let lost = connection.calls.drain(..).map(|call| (call, None)).collect();
            self.lose(lane, lost, false, failure);
        }
    }

    /// Receives late replies on retired connections, and closes those that have ended, are out of
    /// step, or have no calls left.
    pub(super) fn receive_late(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        if self.retired.is_empty() {
            return;
        }
        for mut connection in std::mem::take(&mut self.retired) {
            let (has_ended, completed) = (connection.drive(cx), connection.completed(cx));
            let mut failure = None;
            if self.complete_late(lane, completed, &mut failure) && !has_ended {
                self.retired.extend(Some(connection).filter(Connection::is_waited_for));
            } else {
                connection.fail(&*lane.server, failure.unwrap_or_else(|| lost_connection(None)));
            }
        }
    }

    /// Completes calls of a retired connection. Returns whether further replies on it can be right.
    ///
    /// A refusal counts as one. The connection's loss does not: it was counted when it was retired.
    /// `failure` is set to the error that its calls share.
    fn complete_late(&mut self, lane: &Lane, completed: Completed, failure: &mut Option<Error>) -> bool {
        let is_whole = |(call, result): &(Call, CallResult)| result.as_ref().map_or(true, |value| call.fits(value));
        let mut is_in_step = are_in_step(lane, &completed) && (completed.len() < 2 || completed.iter().all(is_whole));
        let mut goes_on = true;
        for (Call { jobs, permit, .. }, result) in completed {
            match result {
                Ok(value) if is_in_step => {
                    lane.server.report(permit, None);
                    let reply = call::read(&jobs, value);
                    is_in_step = call::complete(jobs, reply, failure);
                }
                Err(error) if is_in_step && !lane.server.is_lost(&error) => {
                    self.refuse(lane, jobs, &error);
                    lane.server.report(permit, Some(&Failure::Error(error)));
                }
                result => {
                    // Replies to other calls before the connection was lost are valid. Its loss was counted when it was
                    // retired.
                    goes_on = false;
                    lane.server.report(permit, Some(&Failure::Unsent));
                    let error = failure.get_or_insert_with(|| lost_connection(result.err().as_ref())).shared();
                    call::fail(jobs, &lane.server.error(error));
                }
            }
        }
        is_in_step && goes_on
    }

    /// Handles jobs that the server refused, by the rules of the server: another server has taken
    /// them, they are sent again alone, or they fail.
    fn refuse(&mut self, lane: &Lane, jobs: Vec<Job>, refusal: &RedisError) {
        match lane.server.redirect(jobs, refusal) {
            Redirected::Elsewhere => {}
            Redirected::Later(jobs) => self.retry_alone(lane, jobs),
            Redirected::Failed(jobs) => call::fail(jobs, &lane.server.error(failed(refusal))),
        }
    }

    /// Sends jobs of a slot that is being moved again, each alone, as one must not fail with
    /// another one. Those that had shared a call go back to the queue at once; one that was alone
    /// already is sent after a pause.
    fn retry_alone(&mut self, lane: &Lane, mut jobs: Vec<Job>) {
        for job in &mut jobs {
            job.is_alone = true;
        }
        if jobs.len() > 1 {
            lane.turns.with(|queue| queue.put_back(jobs.into_iter()));
            self.has_more = true;
            return;
        }
        self.retry_later(jobs, SLOT_PAUSE);
    }

    /// Sends jobs again after a pause, or earlier if a caller's timeout ends before that: then the
    /// job is taken up to be completed with the timeout error.
    pub(super) fn retry_later(&mut self, jobs: Vec<Job>, pause: Duration) {
        let ends = jobs.iter().filter(|job| job.is_awaited()).map(|job| job.timeout.until);
        let again = ends.fold(Instant::now() + pause, Instant::min);
        self.alarm.set(again);
        self.later.push((again, jobs));
    }
}

/// Returns whether all of these can be replies to what was sent. If not, none is used: which of
/// them came first is not known, as a call that loads its script has several replies, and an error
/// may be the reply to the call before. Replies from before the connection was cut are valid.
fn are_in_step(lane: &Lane, completed: &Completed) -> bool {
    // Without an error it shows, and matters, only when jobs are completed.
    let has_errors = completed.iter().any(|(_, result)| result.is_err());
    completed.iter().all(|(call, result)| match result {
        Ok(value) => !has_errors || call.fits(value),
        Err(error) => !lane.server.is_lost(error) || is_cut(error),
    })
}
