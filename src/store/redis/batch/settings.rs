//! How calls are made of requests.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;

use super::call::Answering;
use super::job::Job;
use crate::store::memory::{Clock, micros};
use crate::store::redis::connections;
use crate::store::redis::wire::{Calls, Packed, Way};

/// Calls in flight at once; what comes meanwhile leaves in the next.
pub(super) const CALLS: usize = 2;

/// Checks that are not worth two calls.
const LEAST: usize = 4;

/// How calls are made of requests.
pub(in crate::store::redis) struct Settings {
    pub(in crate::store::redis) calls: Calls,
    /// The time of decisions; the server's if there is none.
    pub(in crate::store::redis) clock: Option<Arc<dyn Clock>>,
    /// Checks of all calls that leave together, at most.
    pub(in crate::store::redis) batch_size: usize,
}

impl Settings {
    /// A call that answers jobs, which are put in the order of its answer.
    pub(super) fn call(&self, mut connection: MultiplexedConnection, jobs: &mut [Job]) -> Answering {
        Packed::sort(jobs);
        let way = jobs.first().map_or(Way::Plain, |job| job.way);
        let now = self.clock.as_deref().map(|clock| micros(clock).to_string()).unwrap_or_default();
        let (program, call) = Packed::of(jobs).command(self.calls, &now);
        Box::pin(async move { connections::call(program, &mut connection, &call, way).await })
    }
}

/// The parts of a batch, each a call of its own: of keys in one slot.
pub(super) fn parts(mut jobs: Vec<Job>) -> impl Iterator<Item = Vec<Job>> {
    let part = |job: &Job| (job.slot, job.way, job.is_alone);
    let is_one = jobs.iter().all(|job| part(job) == part(&jobs[0]) && !job.is_alone);
    let mut parts: Vec<Vec<Job>> = Vec::new();
    if !is_one {
        jobs.sort_by_key(part);
        for job in jobs.drain(..) {
            match parts.last_mut() {
                Some(last) if !job.is_alone && part(&last[0]) == part(&job) => last.push(job),
                _ => parts.push(vec![job]),
            }
        }
    }
    let whole = Some(jobs).filter(|_| is_one);
    whole.into_iter().chain(parts)
}

/// How many checks the next call may have, with `sent` on their way and `waiting` in the queue.
///
/// All calls on their way are to be of like size: a short one behind a long one ends before the long
/// one's callers can ask again, and then the server waits for the process.
pub(super) fn share(sent: usize, waiting: usize) -> usize {
    if sent == 0 { waiting } else { (sent + waiting).div_ceil(CALLS).max(LEAST) }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("batch_size", &self.batch_size).finish_non_exhaustive()
    }
}
