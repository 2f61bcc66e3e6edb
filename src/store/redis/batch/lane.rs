//! One lane, and the tasks that run it.
#![allow(clippy::result_large_err, reason = "the error is the job, which is moved either way")]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Wake as Waked;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::time::Instant;

use super::call;
use super::connection::Shared;
use super::core::Core;
use super::job::Job;
use super::lanes::Home;
use super::late::Lateness;
use super::queue::{Borrower, Queue};
use super::runner::Runner;
use super::server::Server;
use super::settings::Settings;
use super::turns::{Turns, Wake};
use crate::Error;
use crate::core::error::Kind;

/// Runners that a lane begins with.
const RUNNERS: usize = 4;

/// Runners of a lane at most.
const MOST_RUNNERS: usize = 32;

/// The way from one runtime to one server.
pub(super) struct Lane {
    pub(super) turns: Turns<Queue, Box<Core>>,
    pub(super) server: Arc<dyn Server>,
    pub(super) settings: Arc<Settings>,
    pub(super) runtime: Handle,
    pub(super) runtime_id: Id,
    /// The connection that calls are made on.
    current: Mutex<Option<Shared>>,
    pub(super) home: Weak<Home>,
    /// What those receive who wait when it ends.
    pub(super) end: OnceLock<Error>,
    /// What callers on other runtimes receive who waited while it was not run.
    pub(super) stall: Mutex<Lateness>,
    /// Nobody else will come.
    pub(super) is_last: AtomicBool,
}

impl Lane {
    /// A lane on a runtime, with its first runners.
    pub(super) fn start(runtime: Handle, home: &Arc<Home>) -> Arc<Self> {
        let most = match runtime.runtime_flavor() {
            RuntimeFlavor::CurrentThread => 1,
            // As many as can be stuck behind others, and one more.
            _ => (runtime.metrics().num_workers() + 1).min(MOST_RUNNERS),
        };
        let lane = Arc::new(Self {
            turns: Turns::new(Queue::default(), Box::new(Core::new()), most.min(RUNNERS), most),
            server: Arc::clone(&home.server),
            settings: Arc::clone(&home.settings),
            runtime_id: runtime.id(),
            runtime,
            current: Mutex::new(None),
            home: Arc::downgrade(home),
            end: OnceLock::new(),
            stall: Mutex::default(),
            is_last: AtomicBool::new(false),
        });
        (0..most.min(RUNNERS)).for_each(|number| lane.spawn(number));
        lane
    }

    /// Adds a job to the queue.
    ///
    /// # Errors
    ///
    /// The job, if the lane has ended.
    pub(super) fn push(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let is_settlement = job.is_settlement();
        let (added, wake) = self.turns.push(thread(), job, Queue::add)?;
        let is_woken = !matches!(wake, Wake::Nobody);
        self.perform(wake);
        if is_settlement && is_woken {
            // Whoever settles may go on for long without an await.
            self.perform(self.turns.another(thread()));
        }
        if let Err(job) = added {
            job.answer(Err(too_many()));
        }
        Ok(())
    }

    /// Asks for the connection itself.
    ///
    /// # Errors
    ///
    /// If the lane has ended.
    pub(super) fn borrow(self: &Arc<Self>, borrower: Borrower) -> Result<(), Borrower> {
        let (added, wake) = self.turns.push(thread(), borrower, Queue::borrow)?;
        self.perform(wake);
        if let Err(borrower) = added {
            let _ = borrower.answer.send(Err(too_many()));
        }
        Ok(())
    }

    /// Says that a connection is of no use.
    #[cfg_attr(not(any(feature = "cluster", feature = "redis-cell")), allow(dead_code, reason = "scripts need none"))]
    pub(super) fn discard(self: &Arc<Self>, number: u64) {
        let discard = |queue: &mut Queue, number| (queue.discarded = Some(number), true);
        if let Ok(((), wake)) = self.turns.push(thread(), number, discard) {
            self.perform(wake);
        }
    }

    /// Lets the lane end once all is sent and answered.
    pub(super) fn finish(self: &Arc<Self>) {
        self.is_last.store(true, Ordering::Release);
        self.stir();
    }

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

    fn stir(self: &Arc<Self>) {
        self.perform(self.turns.stir(thread()));
    }

    fn perform(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::Runner(waker) => waker.wake(),
            Wake::Spawn(number) => self.spawn(number),
        }
    }

    fn spawn(self: &Arc<Self>, number: usize) {
        self.runtime.spawn(Runner::new(Arc::clone(self), number));
    }
}

/// Resources of the core wake the lane.
impl Waked for Lane {
    fn wake(self: Arc<Self>) {
        self.stir();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stir();
    }
}

/// A mark of the calling thread.
fn thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or_default()
}

#[cold]
fn too_many() -> Error {
    Error::new(Kind::Crowd, "too many decisions wait for Redis")
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("server", &self.server).field("runtime", &self.runtime_id).finish_non_exhaustive()
    }
}
