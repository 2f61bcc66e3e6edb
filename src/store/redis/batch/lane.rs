//! One lane: what its tasks and its callers share, and how it ends.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::call;
use super::connection::{Connection, Shared};
use super::core::{Core, Line};
use super::job::Job;
use super::queue::Queue;
use super::server::Server;
use super::timeout::Lateness;
use super::turns::Turns;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::Clock;
use crate::store::redis::connections::Failure;
use crate::store::redis::wire::Calls;

/// The way from one runtime to one server.
pub(super) struct Lane {
    pub(super) turns: Turns<Queue, Box<Core>>,
    pub(super) server: Arc<dyn Server>,
    pub(super) settings: Arc<Settings>,
    pub(super) runtime: Handle,
    pub(super) runtime_id: Id,
    /// The connection that calls are made on.
    pub(super) current: Mutex<Option<Shared>>,
    pub(super) successor: Weak<dyn Successor>,
    /// What those receive who wait when it ends.
    pub(super) end: OnceLock<Error>,
    /// What callers on other runtimes receive who waited while it was not run.
    pub(super) stall: Mutex<Lateness>,
    /// Nobody else will come.
    pub(super) is_last: AtomicBool,
}

/// How calls are made of requests.
pub(in crate::store::redis) struct Settings {
    pub(in crate::store::redis) calls: Calls,
    /// The time of decisions; the server's if there is none.
    pub(in crate::store::redis) clock: Option<Arc<dyn Clock>>,
    /// Checks of all calls that leave together, at most.
    pub(in crate::store::redis) batch_size: usize,
}

/// Whoever takes over what a lane that ended has not sent.
pub(super) trait Successor: Send + Sync {
    /// Sends settlements in the lane's place.
    fn adopt(&self, settlements: Vec<Job>);
}

impl Lane {
    /// The connection that calls are made on, if there is one.
    pub(super) fn current(&self) -> Option<Shared> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, current: Option<Shared>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// Fails decisions that wait; settlements stay for the next connection.
    pub(super) fn fail_decisions(&self, error: &Error) {
        call::fail(self.turns.with(|queue| queue.take_decisions(Instant::now())), error);
    }

    /// Fails decisions that had been asked for when a connection attempt `began`, and those who had
    /// wanted the connection. Returns whether others wait.
    pub(super) fn fail_with(&self, began: Instant, error: &Error) -> bool {
        let (decisions, borrowers, is_awaited) =
            self.turns.with(|queue| (queue.take_decisions(began), queue.take_borrowers_by(began), queue.is_awaited()));
        call::fail(decisions, error);
        for borrower in borrowers {
            let _ = borrower.answer.send(Err(error.shared()));
        }
        is_awaited
    }

    /// Ends the lane, wherever it stands. All who wait receive one error, as it is one failure.
    /// Settlements that were not sent move to another lane; what becomes of those on their way is not
    /// known.
    pub(super) fn close(&self, core: Option<Box<Core>>) {
        let (rest, runners) = self.turns.close();
        self.publish(None);
        let (mut jobs, mut unsent) = (Vec::new(), Vec::new());
        for core in core.into_iter().chain(rest) {
            core.end(self, &mut jobs, &mut unsent);
        }
        runners.into_iter().for_each(Waker::wake);
        let (queued, borrowers) = self.turns.with(|queue| (queue.take_all(), queue.take_borrowers()));
        unsent.extend(queued);
        if let Some(successor) = self.successor.upgrade() {
            successor.adopt(unsent.extract_if(.., |job| job.is_settlement()).collect());
        }
        jobs.append(&mut unsent);
        let error = self.end.get_or_init(stopped);
        call::fail(jobs, error);
        for borrower in borrowers {
            let _ = borrower.answer.send(Err(error.shared()));
        }
    }
}

impl Core {
    /// Gives up its connections, which says nothing of the server. Adds the jobs of calls on their way to
    /// `sent`, and those that were to be asked again to `unsent`.
    fn end(self, lane: &Lane, sent: &mut Vec<Job>, unsent: &mut Vec<Job>) {
        let (current, leave) = match self.line {
            Line::Up(connection, leave) => (Some(*connection), leave),
            Line::Connecting(_, leave, _) => (None, leave),
            Line::Down => (None, None),
        };
        lane.server.learn(leave, Some(&Failure::Unsent));
        for call in self.retired.into_iter().chain(current).flat_map(Connection::into_calls) {
            lane.server.learn(call.permit, Some(&Failure::Unsent));
            sent.extend(call.jobs);
        }
        unsent.extend(self.later.into_iter().flat_map(|(_, jobs)| jobs));
    }
}

#[cold]
pub(in crate::store::redis) fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped: its runtime has ended")
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("server", &self.server).field("runtime", &self.runtime_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("batch_size", &self.batch_size).finish_non_exhaustive()
    }
}
