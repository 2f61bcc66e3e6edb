//! Jobs that nobody sends.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::job::{Caller, Job, Response};
use super::timeout::Timeout;
use crate::store::redis::wire::Request;

/// What a caller waits with.
pub(super) type Waiting = oneshot::Receiver<Response>;

/// A budget that ends so many milliseconds after a time.
pub(super) fn timeout(start: Instant, after: u64) -> Timeout {
    let budget = Duration::from_millis(after);
    Timeout { budget, ends: start + budget, until: start + budget }
}

/// A decision over so many checks; its slot tells it from others.
pub(super) fn decision(slot: u16, checks: usize, timeout: Timeout) -> (Job, Waiting) {
    let (answer, waiting) = oneshot::channel();
    (Job::new(Request::of_size(checks), Caller::Waits(answer), timeout, slot), waiting)
}

/// A settlement, likewise.
pub(super) fn settlement(slot: u16, checks: usize, timeout: Timeout) -> Job {
    Job::new(Request::of_size(checks), Caller::Settles(None, oneshot::channel().0), timeout, slot)
}
