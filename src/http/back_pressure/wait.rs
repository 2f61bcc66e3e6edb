//! The line in which services wait: the first in it calls the limiter until that admits.
//!
//! It goes on when it is time, or at once when a service of this line returns something: slots of a call that has ended,
//! or all that one took which was never called.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::core::{Key, Lines};
use crate::limiter::{Limiter, Permit, TIMER_RESOLUTION, jitter};
use crate::store::SlotGuard;

/// The pause after a decision that does not name one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, without its jitter: rules that are replaced, and units that another process refunds, end a wait
/// after it. `never_ready` is logged as often.
const LONGEST: Duration = Duration::from_secs(60);

/// What the services of one layer share.
#[derive(Debug)]
pub(super) struct Line {
    limiter: Limiter,
    key: Key,
    /// Its permit is the turn of the first in line; it serves in the order of arrival.
    first: Semaphore,
    /// Notified when a service of this line has returned something.
    returned: Notify,
    never_ready: Lines,
}

impl Line {
    pub(super) fn new(limiter: Limiter, key: Key) -> Self {
        let never_ready = Lines::of(1, LONGEST);
        Self { limiter, key, first: Semaphore::new(1), returned: Notify::new(), never_ready }
    }

    /// Calls the limiter once; returns the permit and its delay, or for how long to pause.
    async fn call(&self) -> Result<(Permit, Duration), Duration> {
        if let Err(error) = self.limiter.can_wait(&self.key) {
            return Err(self.never_ready(&format!("{error:#}")));
        }
        let (decision, permit) = self.limiter.take(&self.key).await.map_err(|error| {
            tracing::debug!(error = format!("{error:#}"), "a service is not ready, as no decision could be made");
            PAUSE
        })?;
        if decision.is_allowed() {
            return Ok((permit, decision.delay()));
        }
        let unknown = || self.never_ready("the cost is more than the quota of a tier ever holds");
        Err(decision.retry_after().unwrap_or_else(unknown).clamp(TIMER_RESOLUTION, LONGEST))
    }

    /// Logs why no service will be ready, and returns the pause.
    fn never_ready(&self, reason: &str) -> Duration {
        self.never_ready.log("", |more| {
            tracing::warn!(code = "never_ready", reason, more, "a service with back-pressure will not be ready");
        });
        PAUSE
    }
}

/// Waits in line until the limiter admits a call, and for its turn in the queue of a leaky bucket.
pub(super) async fn wait(line: Arc<Line>) -> Turn {
    let _first = line.first.acquire().await;
    loop {
        // What was returned before the limiter is called needs no further call.
        pin!(line.returned.notified()).enable();
        match line.call().await {
            Ok((permit, delay)) => {
                let turn = Turn { permit: Some(permit), slots: SlotGuard::default(), line: Arc::clone(&line) };
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                return turn;
            }
            Err(pause) => drop(timeout(pause + jitter(pause), line.returned.notified()).await),
        }
    }
}

/// The turn of a service: what its next call needs was taken. Returned if it is dropped without a call.
pub(super) struct Turn {
    /// There until it is spent or returned.
    permit: Option<Permit>,
    /// Those of the call that has begun.
    slots: SlotGuard,
    line: Arc<Line>,
}

impl Turn {
    /// Begins the call: its units stay taken, and its slots are released when this is dropped.
    pub(super) fn spend(&mut self) {
        self.slots = self.permit.take().map(Permit::spend).unwrap_or_default();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let has_returned = self.permit.take().is_some() | !mem::take(&mut self.slots).is_empty();
        if has_returned {
            self.line.returned.notify_one();
        }
    }
}
