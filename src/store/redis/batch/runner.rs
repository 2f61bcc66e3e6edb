//! The tasks that drive a lane, and what wakes them.
//!
//! A runner is a task of the lane's runtime. Woken, it begins a turn; if it is its turn, it takes
//! the core, works on it in up to `ROUNDS` rounds, and puts it back. Sockets, timers and calls are
//! registered with a waker of the lane, not of the runner: what becomes ready wakes whichever
//! runner can run (`Lane::stir`).
//!
//! This file also has the lane's operations that wake: `push`, `borrow`, `discard` and `finish`.
//! Each changes the queue under the lock, and wakes after the lock is released, as a waker may run
//! code of any executor.
//!
//! A runner ends with its lane. Dropped before that, by its runtime or by a panic, it ends the
//! lane: no other code would.
#![allow(clippy::result_large_err, reason = "the error is the job, which is moved either way")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, Wake as Waked, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::core::{Core, Next};
use super::job::Job;
use super::lane::{Lane, Settings, Successor};
use super::queue::{Borrower, Queue};
use super::server::Server;
use super::turns::{End, Turn, Turns, Wake};
use crate::core::Error;
use crate::core::error::Kind;

/// The number of runners that a lane begins with, if it may have as many.
const RUNNERS: usize = 4;

/// The limit of runners of a lane, however many workers its runtime has.
const MOST_RUNNERS: usize = 32;

/// How many rounds of work a turn has before other tasks of the thread run.
const ROUNDS: usize = 8;

/// A task that works on a lane when it is its turn.
pub(super) struct Runner {
    /// The lane, which also is the waker `inner`.
    lane: Arc<Lane>,
    /// Its number among the lane's runners, from 0.
    number: usize,
    /// The waker that the core's resources receive: it wakes whichever runner can run.
    inner: Waker,
}

impl Runner {
    /// A runner of a lane, which is spawned on the lane's runtime.
    pub(super) fn new(lane: Arc<Lane>, number: usize) -> Self {
        let inner = Waker::from(Arc::clone(&lane));
        Self { lane, number, inner }
    }
}

impl Future for Runner {
    type Output = ();

    /// Takes one turn, if it is this runner's. Ready once the lane has ended.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { lane, number, inner } = &*self;
        let mut core = match lane.turns.begin(*number, cx.waker()) {
            Turn::Work(core) => core,
            Turn::Wait => return Poll::Pending,
            Turn::Over => return Poll::Ready(()),
        };
        for _ in 0..ROUNDS {
            let next = core.work(lane, &mut Context::from_waker(inner));
            if lane.is_last.load(Ordering::Acquire) && !core.is_busy() && lane.turns.with(|queue| queue.is_empty()) {
                lane.close(Some(core));
                return Poll::Ready(());
            }
            match next {
                Next::Work => {}
                Next::Rest => match lane.turns.end(core) {
                    End::Rest => return Poll::Pending,
                    End::Again(again) => core = again,
                    End::Over(core) => {
                        lane.close(Some(core));
                        return Poll::Ready(());
                    }
                },
            }
        }
        if let Some(core) = lane.turns.pause(*number, core) {
            lane.close(Some(core));
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Runner {
    /// A runner that is dropped before its lane has ended was dropped by its runtime, or panicked.
    fn drop(&mut self) {
        if !self.lane.turns.is_over() {
            self.lane.close(None);
        }
    }
}

impl Lane {
    /// Starts a lane from `runtime` to `server`, with its first runners; nothing is connected yet.
    ///
    /// It may have one runner on a runtime of one thread, and one more than there are workers on
    /// others, so that each worker may hold back one.
    pub(super) fn start(
        runtime: Handle,
        server: Arc<dyn Server>,
        settings: Arc<Settings>,
        successor: Weak<dyn Successor>,
    ) -> Arc<Self> {
        let most = match runtime.runtime_flavor() {
            RuntimeFlavor::CurrentThread => 1,
            // As many as can be stuck behind others, and one more.
            _ => (runtime.metrics().num_workers() + 1).min(MOST_RUNNERS),
        };
        let lane = Arc::new(Self {
            turns: Turns::new(Queue::default(), Box::new(Core::new()), most.min(RUNNERS), most),
            server,
            settings,
            runtime_id: runtime.id(),
            runtime,
            current: Mutex::new(None),
            successor,
            end: OnceLock::new(),
            stall: Mutex::default(),
            is_last: AtomicBool::new(false),
        });
        (0..most.min(RUNNERS)).for_each(|number| lane.spawn(number));
        lane
    }

    /// Adds a job to the queue, and wakes a runner if the queue says that it is due. A job that
    /// finds the queue full is completed with an error.
    ///
    /// A settlement wakes two runners: the caller may go on for long without an `.await`, and the
    /// second wake-up makes the first runner free to run on other threads.
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
            job.complete(Err(too_many()));
        }
        Ok(())
    }

    /// Queues a caller that wants the connection itself. If too many wait it receives an error.
    ///
    /// # Errors
    ///
    /// The borrower, if the lane has ended.
    pub(super) fn borrow(self: &Arc<Self>, borrower: Borrower) -> Result<(), Borrower> {
        let (added, wake) = self.turns.push(thread(), borrower, Queue::borrow)?;
        self.perform(wake);
        if let Err(borrower) = added {
            let _ = borrower.sender.send(Err(too_many()));
        }
        Ok(())
    }

    /// Reports that the connection of this number is of no use. Ignored if it is not the current
    /// one any more, or if the lane has ended.
    #[cfg_attr(not(any(feature = "cluster", feature = "redis-cell")), allow(dead_code, reason = "scripts need none"))]
    pub(super) fn discard(self: &Arc<Self>, number: u64) {
        let discard = |queue: &mut Queue, number| (queue.discarded = Some(number), true);
        if let Ok(((), wake)) = self.turns.push(thread(), number, discard) {
            self.perform(wake);
        }
    }

    /// Lets the lane end once all is sent and has its replies. Called when no further job can come.
    pub(super) fn finish(self: &Arc<Self>) {
        self.is_last.store(true, Ordering::Release);
        self.stir();
    }

    /// Wakes a runner, or has the runner at work look again.
    fn stir(self: &Arc<Self>) {
        self.perform(self.turns.stir(thread()));
    }

    /// Carries out a wake-up, after the lock of the turns was released.
    fn perform(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::Runner(waker) => waker.wake(),
            Wake::Spawn(number) => self.spawn(number),
        }
    }

    /// Spawns the runner of a number on the lane's runtime. If that has shut down, the runner is
    /// dropped at once, which ends the lane.
    fn spawn(self: &Arc<Self>, number: usize) {
        self.runtime.spawn(Runner::new(Arc::clone(self), number));
    }
}

/// The waker of the core's resources: sockets, timers and calls wake the lane.
impl Waked for Lane {
    fn wake(self: Arc<Self>) {
        self.stir();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stir();
    }
}

/// Returns a mark of the calling thread, different from that of every other live thread: the
/// address of a thread-local. 0 while the thread is being destroyed.
fn thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or_default()
}

/// The error of a decision or a borrower that finds the queue full. It is no failure of the server,
/// and breakers do not count it.
#[cold]
fn too_many() -> Error {
    Error::new(Kind::Crowd, "too many decisions wait for Redis")
}
