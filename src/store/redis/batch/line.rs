//! The connection of a lane: made when something waits for it, and given up when it fails.

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

/// How often a job is sent anew that was surely not sent before.
const MOST_TRIES: u8 = 3;

/// Before it connects, or asks, again for settlements that wait.
pub(super) const CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Connections that are only polled for late answers.
const MOST_RETIRED: usize = 4;

/// For so long, also while the server answers on a newer one: what is on its way on another path may
/// take longer than that takes to be made.
const LATE_ANSWERS: Duration = Duration::from_secs(10);

impl Core {
    /// Connects if something waits for that.
    pub(super) fn connect(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        if matches!(self.line, Line::Down) {
            self.begin_to_connect(lane);
        }
        if let Line::Connecting(connecting, leave, began) = &mut self.line
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            let (leave, began) = (leave.take(), *began);
            self.is_connected(lane, connected, leave, began);
        }
        self.lend(lane);
    }

    fn begin_to_connect(&mut self, lane: &Lane) {
        if self.connect_again.is_some() {
            send_elsewhere(lane);
        }
        if lane.turns.with(|queue| queue.is_empty()) {
            return;
        }
        let leave = lane.server.ask();
        if let Err(error) = &leave {
            lane.fail_decisions(error);
            // Those who want the connection itself find out whether the server is back.
            if lane.turns.with(|queue| queue.has_no_borrowers()) {
                self.connect_later(lane);
                return;
            }
        }
        self.line = Line::Connecting(lane.server.connect(), leave.unwrap_or_default(), Instant::now());
    }

    fn is_connected(&mut self, lane: &Lane, connected: Result<Link, Error>, leave: Option<Permit>, began: Instant) {
        match connected {
            Ok(link) => {
                let connection = Connection::new(link);
                lane.publish(Some(connection.shared.clone()));
                (self.line, self.has_more) = (Line::Up(Box::new(connection), leave), true);
                (self.late, self.silent) = (Lateness::default(), None);
            }
            Err(error) => {
                self.line = Line::Down;
                // Who came later has an attempt of its own: this one may have begun before the server was back.
                self.has_more |= lane.fail_with(began, &lane.server.error(error.shared()));
                lane.server.learn(leave, Some(&Failure::NotConnected(error)));
                self.connect_later(lane);
            }
        }
    }

    /// Connects again in a moment if settlements wait: nobody else may come.
    fn connect_later(&mut self, lane: &Lane) {
        if lane.turns.with(|queue| queue.is_empty()) {
            return;
        }
        let again = Instant::now() + CONNECT_PAUSE;
        self.connect_again = Some(again);
        self.alarm.set(again);
    }

    /// Gives the connection to those who asked for it.
    fn lend(&mut self, lane: &Lane) {
        let Line::Up(connection, _) = &self.line else { return };
        let (borrowers, discarded) = lane.turns.with(|queue| (queue.take_borrowers(), queue.discarded.take()));
        for borrower in borrowers {
            let _ = borrower.answer.send(Ok(connection.shared.clone()));
        }
        if discarded == Some(connection.shared.number) {
            self.retire(lane);
        }
    }

    /// Gives up a connection that has ended. All its calls fail as one; what was surely not sent is
    /// sent on the next one. The failure is the one that others were told of already.
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
                lane.server.learn(permit, Some(&Failure::Unsent));
                continue;
            }
            let shared = failure.get_or_insert_with(|| lost_connection(error.as_ref())).shared();
            let learned = if permit.is_some() && mem::take(&mut is_first) {
                Failure::NotConnected(shared.shared())
            } else {
                Failure::Unsent
            };
            lane.server.learn(permit, Some(&learned));
            call::fail(jobs, &lane.server.error(shared));
        }
    }

    /// Makes no further calls on the connection. Late answers still come.
    pub(super) fn retire(&mut self, lane: &Lane) {
        let Line::Up(mut connection, _) = self.disconnect(lane) else { return };
        // Somebody may wait for the next one.
        self.has_more = true;
        if connection.calls.is_empty() {
            return;
        }
        let until = Instant::now() + LATE_ANSWERS;
        (connection.polled_until, connection.room) = (Some(until), None);
        self.alarm.set(until);
        if self.retired.len() == MOST_RETIRED {
            self.retired.remove(0).fail(&*lane.server, lost_connection(None));
        }
        self.retired.push(*connection);
    }

    fn disconnect(&mut self, lane: &Lane) -> Line {
        lane.publish(None);
        let mut before = mem::replace(&mut self.line, Line::Down);
        if let Line::Up(_, leave) = &mut before {
            // Nothing was asked by it.
            lane.server.learn(leave.take(), Some(&Failure::Unsent));
        }
        before
    }
}

/// Hands over what another server has by now, as the replica of one that is dead.
fn send_elsewhere(lane: &Lane) {
    // None of it was sent, so it was not sent to and fro either.
    let waiting = lane.turns.with(Queue::take_all).into_iter().map(|job| Job { tries: 0, ..job });
    let here: Vec<Job> = waiting.filter_map(|job| lane.server.again(job)).collect();
    lane.turns.with(|queue| queue.put_back(here.into_iter()));
}

pub(super) fn lost_connection(cause: Option<&RedisError>) -> Error {
    match cause {
        Some(cause) => failed(cause),
        None => Error::new(Kind::Connection, "the connection to Redis was lost"),
    }
}
