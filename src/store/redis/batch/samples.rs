//! Jobs for tests of queues and lanes, which are never sent.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::job::{Caller, Job, Response};
use super::timeout::Timeout;
use crate::store::redis::wire::Request;

/// What the caller of a decision waits with; dropping it makes the job idle.
pub(super) type Waiting = oneshot::Receiver<Response>;

/// A budget of `after` milliseconds that began at `start`.
pub(super) fn timeout(start: Instant, after: u64) -> Timeout {
    let budget = Duration::from_millis(after);
    Timeout { budget, ends: start + budget, until: start + budget }
}

/// A decision over so many checks, and its caller. Tests identify jobs by their slots.
pub(super) fn decision(slot: u16, checks: usize, timeout: Timeout) -> (Job, Waiting) {
    let (sender, waiting) = oneshot::channel();
    (Job::new(Request::of_size(checks), Caller::Waits(sender), timeout, slot), waiting)
}

/// A settlement over so many checks, whose caller does not wait.
pub(super) fn settlement(slot: u16, checks: usize, timeout: Timeout) -> Job {
    Job::new(Request::of_size(checks), Caller::Settles(None, oneshot::channel().0), timeout, slot)
}
