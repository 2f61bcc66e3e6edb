//! The tasks that run a lane, and what wakes them.
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

/// Runners that a lane begins with.
const RUNNERS: usize = 4;

/// Runners of a lane at most.
const MOST_RUNNERS: usize = 32;

/// How often a runner looks for more to do before others have their turn.
const ROUNDS: usize = 8;

/// A task that works on a lane when it is its turn.
pub(super) struct Runner {
    lane: Arc<Lane>,
    number: usize,
    /// Wakes whichever runner can run.
    inner: Waker,
}

impl Runner {
    pub(super) fn new(lane: Arc<Lane>, number: usize) -> Self {
        let inner = Waker::from(Arc::clone(&lane));
        Self { lane, number, inner }
    }
}

impl Future for Runner {
    type Output = ();

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
    /// A lane from a runtime to a server, with its first runners.
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
