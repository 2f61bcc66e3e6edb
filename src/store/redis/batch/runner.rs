//! The tasks that run a lane.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::core::Next;
use super::lane::Lane;
use super::turns::{End, Turn};

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
