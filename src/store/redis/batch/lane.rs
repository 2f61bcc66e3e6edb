//! A lane: what its tasks and its callers share, and how it ends.
//!
//! A lane is the way from one runtime to one server. Callers add jobs to its queue; its runners
//! (`runner.rs`) work on its core, one at a time (`turns.rs`). This file has the state that both
//! see, and the operations on it that fail or move many jobs at once.
//!
//! How a lane ends:
//!
//! 1. its runtime drops a runner, or one panics: `close` is called from the runner's `Drop`;
//! 2. or no further job will come (`is_last`), and the runner at work finds nothing left to do.
//!
//! `close` may be called several times, at any time and by several threads. The caller that has the core
//! when the lane ends fails what it had, exactly once (`models/closing.rs`).
//!
//! Locking: the queue and the turns have one mutex, `current` and `stall` have their own. None is
//! held while another one is taken, or while a job is completed or a waker is called.

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
    /// The queue, and the core for whichever runner works.
    pub(super) turns: Turns<Queue, Box<Core>>,
    /// Where the lane leads to.
    pub(super) server: Arc<dyn Server>,
    /// How calls are made of jobs.
    pub(super) settings: Arc<Settings>,
    /// The runtime whose tasks drive the lane.
    pub(super) runtime: Handle,
    /// The ID of `runtime`, by which callers find their lane.
    pub(super) runtime_id: Id,
    /// The connection that calls are made on, for callers that use it directly; `None` while there
    /// is none. Written by the runner at work.
    pub(super) current: Mutex<Option<Shared>>,
    /// Takes over settlements when the lane ends; it may have been dropped by then.
    pub(super) successor: Weak<dyn Successor>,
    /// The error of all that wait when the lane ends: one, as it is one failure.
    pub(super) end: OnceLock<Error>,
    /// The error of callers on other runtimes that timed out by their own clock, as this lane was
    /// not driven. Those of one stall share it.
    pub(super) stall: Mutex<Lateness>,
    /// Set once no further job will come: the lane ends when all is sent and has its replies.
    pub(super) is_last: AtomicBool,
}

/// How calls are made of jobs. The same for all lanes of a store.
pub(in crate::store::redis) struct Settings {
    /// Whether scripts or functions of a library are called.
    pub(in crate::store::redis) calls: Calls,
    /// The clock of decisions, whose time is sent along; the server's own if there is none.
    pub(in crate::store::redis) clock: Option<Arc<dyn Clock>>,
    /// The limit of checks in all calls of one round. A request that has more leaves alone.
    pub(in crate::store::redis) batch_size: usize,
}

/// Takes over what a lane that ended has not sent: `Home`, which has the other lanes.
pub(super) trait Successor: Send + Sync {
    /// Sends settlements in the lane's place, in their order. It neither blocks nor fails; it is
    /// called when a lane ends, from whichever thread.
    fn adopt(&self, settlements: Vec<Job>);
}

impl Lane {
    /// Returns the connection that calls are made on, if there is one. It may be lost or replaced
    /// by the time it is used, which its number shows.
    pub(super) fn current(&self) -> Option<Shared> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the connection that `current` returns. Called by the runner at work when it connects or
    /// gives a connection up, and at the end.
    pub(super) fn publish(&self, current: Option<Shared>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// Fails the decisions that wait by now. Settlements stay for the next connection.
    pub(super) fn fail_decisions(&self, error: &Error) {
        call::fail(self.turns.with(|queue| queue.take_decisions(Instant::now())), error);
    }

    /// Fails the decisions and borrowers that waited when a connection attempt `began`: it was made
    /// for them. Later ones get an attempt of their own. Returns whether any of those wait.
    pub(super) fn fail_with(&self, began: Instant, error: &Error) -> bool {
        let (decisions, borrowers, is_awaited) =
            self.turns.with(|queue| (queue.take_decisions(began), queue.take_borrowers_by(began), queue.is_awaited()));
        call::fail(decisions, error);
        for borrower in borrowers {
            let _ = borrower.sender.send(Err(error.shared()));
        }
        is_awaited
    }

    /// Ends the lane, wherever it stands. `core` is the core if the caller has it, as a runner at
    /// work does; a resting core is taken from the turns.
    ///
    /// All waiting callers receive one error. Settlements that were not sent move to another lane; the
    /// outcome of those in flight is not known, and they fail with the others.
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
            let _ = borrower.sender.send(Err(error.shared()));
        }
    }
}

impl Core {
    /// Gives up the connections, which is no failure of the server. Adds the jobs of calls in flight
    /// to `sent`, and those that wait for a retry to `unsent`; the caller completes or moves them.
    fn end(self, lane: &Lane, sent: &mut Vec<Job>, unsent: &mut Vec<Job>) {
        let (current, attempt_permit) = match self.line {
            Line::Up(connection, attempt_permit) => (Some(*connection), attempt_permit),
            Line::Connecting(_, attempt_permit, _) => (None, attempt_permit),
            Line::Down => (None, None),
        };
        lane.server.report(attempt_permit, Some(&Failure::Unsent));
        for call in self.retired.into_iter().chain(current).flat_map(Connection::into_calls) {
            lane.server.report(call.permit, Some(&Failure::Unsent));
            sent.extend(call.jobs);
        }
        unsent.extend(self.later.into_iter().flat_map(|(_, jobs)| jobs));
    }
}

/// The error of all callers that wait when their lane ends with its runtime.
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
