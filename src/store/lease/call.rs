//! Lease calls: one in flight for a key, and none depends on a caller.
//!
//! A [`Want`] comes in; the inner store is given one check of that many units, without a deadline. Units that come
//! go to the key's lots. Calls that wait run as tasks of the current tokio runtime, so a request that is dropped
//! takes no lease along; one whose runtime ends is dropped, and counts as failed.
//!
//! Invariant: each want is ended exactly once, by [`keep`], [`rest`] or a second call; `in_flight` of its key names the
//! call until then, and the result of any other call does not change the key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;

use super::hot_key::LEAST;
use super::leases::Leases;
use super::lot::{Lot, lifetime};
use super::sweeping::sweep_by_task;
use crate::core::{Error, Outcome};
use crate::store::{Answer, Ask, Check, Counter, Decided, Store};

/// A lease to request.
#[derive(Clone, Debug)]
pub(super) struct Want {
    /// The hash of the counter.
    pub(super) hash: u64,
    /// With the quota the key was last checked with.
    pub(super) counter: Counter,
    /// How many units to lease.
    pub(super) units: u64,
    /// The number of the call, which its result has to match.
    pub(super) call: u64,
}

/// A lease call in flight. Dropped without a result it counts as failed, as when a runtime ends.
struct LeaseCall {
    /// Kept alive until the call has ended.
    leases: Arc<Leases>,
    /// `None` once the call has its result.
    want: Option<Want>,
    /// When it was sent: the lifetime of the lease begins here.
    sent: u64,
    /// The same by the wall clock, if windows are aligned to it.
    wall: Option<u64>,
    /// Whether it is the second call, for the units that the first returned as remaining.
    again: bool,
    /// One of [`MOST_CALLS`](super::leases::MOST_CALLS).
    _permit: OwnedSemaphorePermit,
}

/// Requests a lease; returns whether there is a result already, which may be a refusal.
pub(super) fn request_lease(leases: &Arc<Leases>, want: Want) -> bool {
    LeaseCall::send(leases, want, false)
}

impl LeaseCall {
    /// Sends a call; returns whether it was decided at once. With too many calls in flight none is sent, and the key
    /// rests. Without a runtime a call that is pending is dropped, and has failed.
    fn send(leases: &Arc<Leases>, want: Want, again: bool) -> bool {
        let Ok(permit) = Arc::clone(&leases.calls).try_acquire_owned() else {
            rest(leases, &want, 0);
            return false;
        };
        let check = Check::new(want.counter.clone(), want.units);
        let (sent, wall) = (leases.now(), leases.wall(want.counter.quota()));
        let mut call = Self { leases: Arc::clone(leases), want: Some(want), sent, wall, again, _permit: permit };
        match leases.inner.decide(&[check], Ask::default()) {
            Answer::Ready(result) => {
                call.completed(result);
                true
            }
            Answer::Pending(pending) => {
                if let Ok(runtime) = Runtime::try_current() {
                    runtime.spawn(async move { call.completed(pending.await) });
                    sweep_by_task(leases);
                }
                false
            }
        }
    }

    /// Ends the call by what the inner store decided.
    fn completed(&mut self, result: Result<Decided, Error>) {
        let Some(want) = self.want.take() else { return };
        match result {
            Ok(decided) if decided.decision.is_allowed() && !decided.receipt.taken().is_empty() => {
                keep(&self.leases, &want, decided, (self.sent, self.wall));
            }
            Ok(decided) => self.denied(want, &decided),
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "a lease call failed");
                rest(&self.leases, &want, want.units);
            }
        }
    }

    /// Calls once more, for what remains, if that is worth a call.
    ///
    /// There is no second call after a second refusal, nor for fewer units than [`LEAST`].
    fn denied(&self, want: Want, decided: &Decided) {
        let left = decided.decision.outcomes().first().map_or(0, Outcome::remaining).min(want.units);
        if self.again || left < LEAST || decided.decision.is_allowed() {
            return rest(&self.leases, &want, 0);
        }
        Self::send(&self.leases, Want { units: left, ..want }, true);
    }
}

impl Drop for LeaseCall {
    fn drop(&mut self) {
        if let Some(want) = self.want.take() {
            rest(&self.leases, &want, want.units);
        }
    }
}

/// Keeps a lease that came.
///
/// One that came too late is returned, and one that was requested before a reset is lost: it is not known on which
/// side of it the units were charged. A lease whose receipt is another store's than the earlier ones' is returned,
/// too.
fn keep(leases: &Leases, want: &Want, decided: Decided, (sent, wall): (u64, Option<u64>)) {
    let now = leases.now();
    let known = *leases.inner_id.get_or_init(|| decided.receipt.store()) == decided.receipt.store();
    let lot = Lot::new(decided, sent, wall, now);
    let mut backs = Vec::new();
    let mut hot_keys = leases.shards.lock(want.hash);
    hot_keys.counts.leased += want.units;
    let (closed, quiet) = (leases.closed.load(Ordering::SeqCst), now + lifetime(want.counter.quota()));
    match hot_keys.find(want.hash, &want.counter).filter(|hot| hot.in_flight == Some(want.call)) {
        None if closed => backs.push((lot, want.counter.quota().limit())),
        None => hot_keys.counts.lost += want.units,
        Some(hot) => {
            hot.in_flight = None;
            if closed || !known || lot.is_over(now) {
                hot.quiet_until = quiet;
                backs.push((lot, want.counter.quota().limit()));
            } else {
                hot.add(lot, &mut backs);
            }
        }
    }
    drop(hot_keys);
    leases.give_back(backs, now);
}

/// Keeps a key from requesting leases for one lifetime, and counts the units that a failed call may have charged as
/// `lost`.
fn rest(leases: &Leases, want: &Want, lost: u64) {
    let now = leases.now();
    let mut hot_keys = leases.shards.lock(want.hash);
    hot_keys.counts.leased += lost;
    hot_keys.counts.lost += lost;
    if let Some(hot) = hot_keys.find(want.hash, &want.counter).filter(|hot| hot.in_flight == Some(want.call)) {
        (hot.in_flight, hot.quiet_until) = (None, now + lifetime(want.counter.quota()));
    }
}
