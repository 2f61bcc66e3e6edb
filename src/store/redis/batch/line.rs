//! The connection of a lane: made when something waits for it, and discarded when it fails.
//!
//! States of `Line`, and what changes them:
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | `Down` | `Connecting` | a job waits and the breaker gives a permit, or a borrower waits |
//! | `Connecting` | `Up` | the attempt succeeds: borrowers receive the connection, jobs are sent |
//! | `Connecting` | `Down` | it fails: all that waited when it began fail with it |
//! | `Up` | `Down` | `lose`: the connection ended, or is out of step; its calls fail |
//! | `Up` | `Down`, retired | `retire`: it is silent or leads to a replica; it may still receive replies |
//!
//! A failed attempt is not repeated for its own sake: the next job causes the next one. Only for
//! settlements, after which no job may come, does the lane connect again after `CONNECT_PAUSE`.
//! Retired connections receive replies for up to 10 s, so that what was taken for callers that
//! timed out can be refunded.
//!
//! Each loss counts as one failure for the server's breaker, however many calls it ends.

use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool_redis::redis::RedisError;
use tokio::time::Instant;

use super::call::{self, Call};
use super::connection::Connection;
use super::core::{Core, Line};
use super::job::Job;
use super::lane::Lane;
use super::queue::Queue;
use super::timeout::Lateness;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::breaker::Permit;
use crate::store::redis::connections::{Failure, Link, failed};

/// The limit of times that a job is sent anew on another connection, having surely not been sent
/// before.
const MOST_TRIES: u8 = 3;

/// The pause before the lane connects, or sends, again for settlements that wait.
pub(super) const CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// The limit of retired connections of a lane; of more, the oldest is closed.
const MOST_RETIRED: usize = 4;

/// How long a retired connection receives late replies, also while the server responds on a newer
/// one: what is on its way on another network path may take longer than a new connection takes.
const LATE_REPLIES: Duration = Duration::from_secs(10);

impl Core {
    /// Begins to connect if something waits for a connection, polls the attempt, and lends the
    /// connection to borrowers.
    pub(super) fn connect(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        if matches!(self.line, Line::Down) {
            self.begin_to_connect(lane);
        }
        if let Line::Connecting(connecting, attempt_permit, began) = &mut self.line
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            let (attempt_permit, began) = (attempt_permit.take(), *began);
            self.is_connected(lane, connected, attempt_permit, began);
        }
        self.lend(lane);
    }

    /// Begins an attempt if a job or borrower waits.
    ///
    /// Without a permit, decisions fail with the breaker's error; the attempt is still made
    /// if a borrower waits, as its call may find that the server responds again. Settlements are
    /// first offered to the server that has their slot by now.
    fn begin_to_connect(&mut self, lane: &Lane) {
        if self.connect_again.is_some() {
            send_elsewhere(lane);
        }
        if lane.turns.with(|queue| queue.is_empty()) {
            return;
        }
        let attempt_permit = lane.server.acquire();
        if let Err(error) = &attempt_permit {
            lane.fail_decisions(error);
            // The calls of borrowers show whether the server is available again.
            if lane.turns.with(|queue| queue.has_no_borrowers()) {
                self.connect_later(lane);
                return;
            }
        }
        self.line = Line::Connecting(lane.server.connect(), attempt_permit.unwrap_or_default(), Instant::now());
    }

    /// Ends an attempt: `began` is when it began, `attempt_permit` its permit. A success resets the
    /// state of silence; the permit goes to the first call. A failure is reported once, and fails
    /// those that waited when the attempt began.
    fn is_connected(
        &mut self,
        lane: &Lane,
        connected: Result<Link, Error>,
        attempt_permit: Option<Permit>,
        began: Instant,
    ) {
        match connected {
            Ok(link) => {
                let connection = Connection::new(link);
                lane.publish(Some(connection.shared.clone()));
                (self.line, self.has_more) = (Line::Up(Box::new(connection), attempt_permit), true);
                (self.late, self.silent) = (Lateness::default(), None);
            }
            Err(error) => {
                self.line = Line::Down;
                // Later jobs have an attempt of their own: this one may have begun before the server was available.
                self.has_more |= lane.fail_with(began, &lane.server.error(error.shared()));
                lane.server.report(attempt_permit, Some(&Failure::NotConnected(error)));
                self.connect_later(lane);
            }
        }
    }

    /// Sets when to connect again, if anything still waits: after a failure these are settlements,
    /// and jobs that came during the attempt.
    fn connect_later(&mut self, lane: &Lane) {
        if lane.turns.with(|queue| queue.is_empty()) {
            return;
        }
        let again = Instant::now() + CONNECT_PAUSE;
        self.connect_again = Some(again);
        self.alarm.set(again);
    }

    /// Gives the connection to the callers that want it themselves, and retires it if one of them
    /// found it to be of no use meanwhile.
    fn lend(&mut self, lane: &Lane) {
        let Line::Up(connection, _) = &self.line else { return };
        let (borrowers, discarded) = lane.turns.with(|queue| (queue.take_borrowers(), queue.discarded.take()));
        for borrower in borrowers {
            let _ = borrower.sender.send(Ok(connection.shared.clone()));
        }
        if discarded == Some(connection.shared.number) {
            self.retire(lane);
        }
    }

    /// Gives up a connection that has ended or is out of step. `lost` are all calls on it, with the
    /// error of those that received one.
    ///
    /// With `is_unsent`, calls that were surely not sent return to the front of the queue, up to
    /// `MOST_TRIES` times. All others fail as one: with `failure`, if others received that already
    /// for the same loss, else with the error of the first. One failure is reported to the breaker; the
    /// other permits are released without a verdict.
    pub(super) fn lose(
        &mut self,
        lane: &Lane,
        lost: Vec<(Call, Option<RedisError>)>,
        is_unsent: bool,
        mut failure: Option<Error>,
    ) {
        self.disconnect(lane);
        let mut is_first = true;
        for (Call { mut jobs, permit, may_be_sent, .. }, error) in lost {
            if is_unsent && !may_be_sent && jobs.iter().all(|job| job.tries < MOST_TRIES) {
                for job in &mut jobs {
                    job.tries += 1;
                }
                lane.turns.with(|queue| queue.put_back(jobs.into_iter()));
                lane.server.report(permit, Some(&Failure::Unsent));
                continue;
            }
            let shared = failure.get_or_insert_with(|| lost_connection(error.as_ref())).shared();
            let outcome = if permit.is_some() && mem::take(&mut is_first) {
                Failure::NotConnected(shared.shared())
            } else {
                Failure::Unsent
            };
            lane.server.report(permit, Some(&outcome));
            call::fail(jobs, &lane.server.error(shared));
        }
    }

    /// Makes no further calls on the connection and closes it at once if no call is in flight.
    /// Otherwise late replies are still received on it, and its place in the pool is free for the
    /// next one.
    ///
    /// Calls in flight keep their callers until these time out.
    pub(super) fn retire(&mut self, lane: &Lane) {
        let Line::Up(mut connection, _) = self.disconnect(lane) else { return };
        // Jobs may wait for the next one.
        self.has_more = true;
        if connection.calls.is_empty() {
            return;
        }
        let until = Instant::now() + LATE_REPLIES;
        (connection.polled_until, connection.room) = (Some(until), None);
        self.alarm.set(until);
        if self.retired.len() == MOST_RETIRED {
            self.retired.remove(0).fail(&*lane.server, lost_connection(None));
        }
        self.retired.push(*connection);
    }

    /// Takes the connection out of use and returns it. A permit that no call has used is released:
    /// nothing was sent by it.
    fn disconnect(&mut self, lane: &Lane) -> Line {
        lane.publish(None);
        let mut before = mem::replace(&mut self.line, Line::Down);
        if let Line::Up(_, attempt_permit) = &mut before {
            // Nothing was sent by it.
            lane.server.report(attempt_permit.take(), Some(&Failure::Unsent));
        }
        before
    }
}

/// Moves queued jobs to the server that has their slot by now, as the replica that replaced a dead
/// primary; the rest returns to the queue in its order. On a single server nothing moves.
fn send_elsewhere(lane: &Lane) {
    // None of them was sent, so none was redirected.
    let waiting = lane.turns.with(Queue::take_all).into_iter().map(|job| Job { tries: 0, ..job });
    let here: Vec<Job> = waiting.filter_map(|job| lane.server.again(job)).collect();
    lane.turns.with(|queue| queue.put_back(here.into_iter()));
}

/// The error of a lost connection; `cause` is what the client library reported, if it did.
pub(super) fn lost_connection(cause: Option<&RedisError>) -> Error {
    match cause {
        Some(cause) => failed(cause),
        None => Error::new(Kind::Connection, "the connection to Redis was lost"),
    }
}
