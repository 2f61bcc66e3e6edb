//! The line in which services wait: the first in it calls the limiter until that admits.
//!
//! It goes on when it is time, or at once when a service of this line returns something: slots of a call that has ended,
//! or all that one took which was never called.

use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::core::{Decision, Error, Key, Lines};
use crate::limiter::{Limiter, Permit, TIMER_RESOLUTION, jitter};
use crate::store::SlotGuard;

/// The pause after a decision that does not name one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, without its jitter: rules that are replaced, and units that another process refunds, end a wait
/// after it.
const LONGEST: Duration = Duration::from_secs(60);

/// How often `never_ready` is logged.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What the services of one layer share.
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
        let never_ready = Lines::of(1, WARN_EVERY);
        Self { limiter, key, first: Semaphore::new(1), returned: Notify::new(), never_ready }
    }

    /// Calls the limiter once; returns the permit and its delay, or for how long to pause.
    async fn call(&self) -> Result<(Permit, Duration), Duration> {
        if let Err(error) = self.limiter.can_wait(&self.key) {
            self.warn(&format!("{error:#}"));
            return Err(PAUSE);
        }
        let (decision, permit) = self.limiter.take(&self.key).await.map_err(|error| failed(&error))?;
        if decision.is_allowed() { Ok((permit, decision.delay())) } else { Err(self.pause(&decision)) }
    }

    /// Returns the pause after a refusal.
    fn pause(&self, decision: &Decision) -> Duration {
        let wait = decision.retry_after().unwrap_or_else(|| {
            self.warn("the cost is more than the quota of a tier ever holds");
            PAUSE
        });
        wait.clamp(TIMER_RESOLUTION, LONGEST)
    }

    fn warn(&self, reason: &str) {
        self.never_ready.log("", |more| {
            tracing::warn!(code = "never_ready", reason, more, "a service with back-pressure will not be ready");
        });
    }
}

/// Returns the pause after a call without a decision.
fn failed(error: &Error) -> Duration {
    tracing::debug!(error = format!("{error:#}"), "a service is not ready, as no decision could be made");
    PAUSE
}

/// Waits in line until the limiter admits a call, and for its turn in the queue of a leaky bucket.
pub(super) async fn wait(line: Arc<Line>) -> Turn {
    let _first = line.first.acquire().await;
    loop {
        let mut returned = pin!(line.returned.notified());
        if returned.as_mut().enable() {
            // What was returned before the limiter is called needs no further call.
            returned.set(line.returned.notified());
            returned.as_mut().enable();
        }
        match line.call().await {
            Ok((permit, delay)) => {
                let turn = Turn { permit: Some(permit), line: Arc::clone(&line) };
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                return turn;
            }
            Err(pause) => drop(timeout(pause + jitter(pause), returned).await),
        }
    }
}

/// The turn of a service: what its next call needs was taken. Returned if it is dropped without a call.
pub(super) struct Turn {
    /// There until it is spent or returned.
    permit: Option<Permit>,
    line: Arc<Line>,
}

impl Turn {
    /// Begins the call.
    pub(super) fn spend(mut self) -> Running {
        let slots = self.permit.take().map(Permit::spend).unwrap_or_default();
        Running { slots, line: Arc::clone(&self.line) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            drop(permit);
            self.line.returned.notify_one();
        }
    }
}

/// The slots of a call, which are released when it is dropped.
pub(super) struct Running {
    slots: SlotGuard,
    line: Arc<Line>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            drop(mem::take(&mut self.slots));
            self.line.returned.notify_one();
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("limiter", &self.limiter).field("key", &self.key).finish_non_exhaustive()
    }
}
