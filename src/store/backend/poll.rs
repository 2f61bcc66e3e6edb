//! How the futures of rounds are polled: once by a caller, then by a task, and not for longer than they may.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, timeout_at};

/// Waits for a future until a time, where there are timers; `None` if that is not long enough.
pub(super) async fn within<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // What need not wait needs no timer.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(done);
    }
    if Runtime::try_current().is_err() {
        return Some(future.await);
    }
    timeout_at(until, future).await.ok()
}

/// Spawns a round so that the thread which does it may block afterwards: a second task has another worker take the first.
pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(runtime: &Runtime, round: F) {
    drop(runtime.spawn(round));
    drop(runtime.spawn(async {}));
}

/// Polls a future once, and returns whether it is complete. If it is not, it has to be polled by a task.
pub(super) fn poll_once<F: Future<Output = ()>>(round: Pin<&mut F>) -> bool {
    round.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
