//! Calls of the inner store that no request waits for: requesting leases, and returning them in time and at the end.
//!
//! At most one lease call per key is in flight: one check of as many units, without a deadline. The units pay the key's
//! debt and become a lot. Pending calls run as tasks of the current tokio runtime, so that a dropped request does not
//! end them. If the runtime ends, a call is dropped, and counts as failed.
//!
//! Invariant: each want is ended exactly once, by [`keep`], [`rest`] or a second call. Until then `in_flight` of its
//! key is the call's number, and the result of any other call does not change the key.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;

use super::{Leases, MAX_CALLS};
use crate::core::Error;
use crate::store::lease::hot_key::{Back, Lease, LeaseRequest, OVERDRAWN};
use crate::store::lease::hot_keys::HotKeys;
use crate::store::{Ask, Check, Counter, MaybeFuture, Store, StoreDecision};

/// A lease call in flight. Counts as failed if it is dropped without a result, for example with its runtime.
struct LeaseCall {
    leases: Arc<Leases>,
    /// `None` once the call has its result.
    want: Option<LeaseRequest>,
    /// The lease's lifetime begins here.
    sent: u64,
    /// `sent` by the wall clock, if windows are aligned to it.
    wall: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

/// With too many calls in flight, the key rests. Without a runtime, a pending call fails.
pub(super) fn request_lease(leases: &Arc<Leases>, want: LeaseRequest) {
    sweep_by_task(leases);
    let mut next = Some(want);
    while let Some(want) = next.take() {
        let Ok(permit) = Arc::clone(&leases.calls).try_acquire_owned() else { return rest(leases, &want, 0) };
        let check = Check::new(want.counter.clone(), want.units);
        let (sent, wall) = (leases.now(), leases.wall(want.counter.quota()));
        let mut call = LeaseCall { leases: Arc::clone(leases), want: Some(want), sent, wall, _permit: permit };
        match (leases.inner.decide(&[check], Ask::default()), Runtime::try_current()) {
            (MaybeFuture::Ready(result), _) => next = call.completed(result),
            (MaybeFuture::Pending(pending), Ok(runtime)) => drop(runtime.spawn(async move {
                if let Some(next) = call.completed(pending.await) {
                    request_lease(&call.leases, next);
                }
            })),
            (MaybeFuture::Pending(_), Err(_)) => {}
        }
    }
}

impl LeaseCall {
    fn completed(&mut self, result: Result<StoreDecision, Error>) -> Option<LeaseRequest> {
        let want = self.want.take()?;
        match result {
            Ok(decided) if decided.decision.is_allowed() && !decided.receipt.items().is_empty() => {
                return keep(&self.leases, &want, decided, (self.sent, self.wall));
            }
            Ok(_) => rest(&self.leases, &want, 0),
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "lease call failed");
                rest(&self.leases, &want, want.units);
            }
        }
        None
    }
}

impl Drop for LeaseCall {
    fn drop(&mut self) {
        if let Some(want) = self.want.take() {
            rest(&self.leases, &want, want.units);
        }
    }
}

/// Returns the next lease to request if a debt is left. A lease requested before a reset is lost, because its units may
/// have been charged before or after it.
fn keep(
    leases: &Leases,
    want: &LeaseRequest,
    decided: StoreDecision,
    (sent, wall): (u64, Option<u64>),
) -> Option<LeaseRequest> {
    let (now, quota) = (leases.now(), want.counter.quota());
    let known = *leases.inner_id.get_or_init(|| decided.receipt.store()) == decided.receipt.store();
    let (lot, seen) = Lease::new(decided, sent, wall, now);
    let closed = leases.closed.load(Ordering::SeqCst);
    let is_over = closed || lot.has_ended(now, leases.wall(quota));
    let mut backs = Vec::new();
    let mut hot_keys = leases.shards.lock(want.hash);
    let HotKeys { table, counts, .. } = &mut *hot_keys;
    counts.leased += want.units;
    let hot = table.find_mut(want.hash, |hot| hot.is(&want.counter)).and_then(|hot| hot.ending(want));
    let Some(hot) = hot else {
        counts.lost += want.units;
        return None;
    };
    if known && lot.stamp() < OVERDRAWN {
        counts.owed -= hot.grant((lot, seen), want, is_over, now, &mut backs);
    } else {
        backs.push(Back::Lease(lot, quota.limit()));
        hot.rest(now);
    }
    if closed {
        hot.rest(now);
    }
    let next = if hot.owed() > 0 { hot.request(0, leases.most(quota), now) } else { None };
    drop(hot_keys);
    leases.give_back(backs, now);
    next
}

/// Counts `lost` units that a failed call may have charged. The next request or sweep charges the debt.
fn rest(leases: &Leases, want: &LeaseRequest, lost: u64) {
    let now = leases.now();
    let mut hot_keys = leases.shards.lock(want.hash);
    hot_keys.counts.leased += lost;
    hot_keys.counts.lost += lost;
    if let Some(hot) = hot_keys.find(want.hash, &want.counter).and_then(|hot| hot.ending(want)) {
        hot.rest(now);
    }
}

const SWEEP: Duration = Duration::from_millis(50);

fn sweep_by_task(leases: &Arc<Leases>) {
    let Ok(runtime) = Runtime::try_current() else { return };
    if leases.swept.swap(true, Ordering::SeqCst) {
        return;
    }
    let sweeping = Sweeping(Arc::downgrade(leases));
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let Some(leases) = sweeping.0.upgrade() else { return };
            // `close` waits until the units taken here are returned and counted.
            let Ok(_permit) = leases.calls.acquire().await else { return };
            let (now, mut backs) = (leases.now(), Vec::new());
            let closed = leases.closed.load(Ordering::SeqCst);
            for mut hot_keys in leases.shards.each() {
                hot_keys.sweep(now, closed, &mut backs);
            }
            leases.give_back(backs, now);
        }
    });
}

struct Sweeping(Weak<Leases>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(leases) = self.0.upgrade() {
            leases.swept.store(false, Ordering::SeqCst);
        }
    }
}

/// Leases returned at once by `close`, because inner stores bound the settlements in progress.
const AT_ONCE: usize = 1_024;

/// Returns leases first, before any await, then waits for calls in flight and charges the debt that they left.
pub(super) async fn close(leases: &Leases) {
    leases.closed.store(true, Ordering::SeqCst);
    let mut responds = true;
    for _ in 0..2 {
        loop {
            let backs = leases.take(AT_ONCE);
            let counters: Vec<Counter> = backs.iter().map(|back| back.counter().clone()).collect();
            leases.give_back(backs, leases.now());
            responds = responds && all_respond(leases, &counters).await;
            if counters.len() < AT_ONCE {
                break;
            }
        }
        drop(leases.calls.acquire_many(MAX_CALLS).await);
    }
    leases.calls.close();
}

/// Peeks at each counter, because the inner store has then made all earlier settlements. Ends at the first failure.
async fn all_respond(leases: &Leases, counters: &[Counter]) -> bool {
    tokio::task::yield_now().await;
    for counter in counters {
        let look = [Check::new(counter.clone(), 0)];
        if leases.inner.decide(&look, Ask::default()).wait().await.is_err() {
            return false;
        }
    }
    true
}
