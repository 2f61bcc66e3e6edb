//! Jobs that nobody sends.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::job::{Caller, Job, Told};
use crate::store::redis::connections::Patience;
use crate::store::redis::wire::Request;

/// What a caller waits with.
pub(super) type Waiting = oneshot::Receiver<Told>;

/// A budget that ends so many milliseconds after a time.
pub(super) fn patience(start: Instant, after: u64) -> Patience {
    let budget = Duration::from_millis(after);
    Patience { budget, ends: start + budget, until: start + budget }
}

/// A decision over so many checks; its slot tells it from others.
pub(super) fn decision(slot: u16, checks: usize, patience: Patience) -> (Job, Waiting) {
    let (answer, waiting) = oneshot::channel();
    (Job::new(request(checks), Caller::Waits(answer), patience, slot), waiting)
}

/// A settlement, likewise.
pub(super) fn settlement(slot: u16, checks: usize, patience: Patience) -> Job {
    Job::new(request(checks), Caller::Settles(None, oneshot::channel().0), patience, slot)
}

fn request(checks: usize) -> Request {
    Request { checks: (0..checks).map(|_| [0, 0]).collect(), ..Request::default() }
}
