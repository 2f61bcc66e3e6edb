//! Admitting a request with leases.
//!
//! The checks come in. An admitted decision goes out if leases or overdrafts cover all of them, and `None` otherwise:
//! nothing is ever refused here. On the way the request's demand is noted, and leases that its keys want are requested after the locks
//! have been released; if the inner store decides at once, a lease may cover the very request that caused it.
//!
//! Invariant: all checks are spent under the locks of all their parts, or none is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::call::{Want, request_lease};
use super::hot_key::{Back, HotKey};
use super::hot_keys::HotKeys;
use super::leases::Leases;
use super::lot::lifetime;
use crate::core::decision::{Decision, Source};
use crate::store::around::is_plain;
use crate::store::map::Locked;
use crate::store::{Check, Decided, Receipt, Taken};

/// The result of an attempt to admit a request by leases, while the locks are held.
#[derive(Default)]
struct Attempt {
    /// The decision, if leases cover all checks.
    decided: Option<Decided>,
    /// Leases to request.
    wants: SmallVec<[Want; 2]>,
    /// Leases that were found to be over, to be returned.
    backs: Vec<Back>,
}

/// Admits a request that leases cover in full; `None` leaves the decision to the inner store.
///
/// New leases are requested. If one is decided at once, the request is tried a second time, which notes no
/// demand again. A closed store admits nothing.
#[inline]
pub(super) fn admit(leases: &Arc<Leases>, checks: &[Check]) -> Option<Decided> {
    if leases.closed.load(Ordering::Relaxed) || !is_plain(checks) {
        return None;
    }
    let now = leases.now();
    let Attempt { decided, wants, backs } = attempt(leases, checks, now, true);
    leases.give_back(backs, now);
    let came = wants.into_iter().filter(|want| request_lease(leases, want.clone())).count() > 0;
    if decided.is_some() || !came {
        return decided;
    }
    let Attempt { decided, backs, .. } = attempt(leases, checks, now, false);
    leases.give_back(backs, now);
    decided
}

/// Spends all checks or none, under the locks of all. Demand is noted only of requests whose
/// keys all are hot: leases cannot cover the others, however many there are.
///
/// `first` is whether this is the request's first try.
fn attempt(leases: &Leases, checks: &[Check], now: u64, first: bool) -> Attempt {
    if let [check] = checks {
        return attempt_one(leases, check, now, first);
    }
    let mut attempt = Attempt::default();
    let mut locked = leases.lock_all(checks);
    let mut hot = true;
    for (index, check) in checks.iter().enumerate() {
        let (hash, hot_keys) = locked.of(index);
        match hot_keys.heat(hash, &check.counter, now) {
            Some(key) => key.refresh(&check.counter, now, leases, &mut attempt.backs),
            None => hot = false,
        }
    }
    if !hot {
        return attempt;
    }
    let mut admitted = true;
    for (index, check) in checks.iter().enumerate() {
        let (hash, hot_keys) = locked.of(index);
        let key = hot_keys.find(hash, &check.counter).expect("it is hot");
        if first {
            attempt.wants.extend(note(leases, key, check, now));
        }
        admitted &= key.admits(check.cost, now);
    }
    if admitted {
        attempt.decided = Some(spend(leases, &mut locked, checks, now));
    }
    attempt
}

/// As [`attempt`], for a request with one check, which most have: with one look into one part.
fn attempt_one(leases: &Leases, check: &Check, now: u64, first: bool) -> Attempt {
    let mut attempt = Attempt::default();
    let hash = leases.hash(&check.counter);
    let mut hot_keys = leases.shards.lock(hash);
    let Some(key) = hot_keys.heat(hash, &check.counter, now) else { return attempt };
    key.refresh(&check.counter, now, leases, &mut attempt.backs);
    if first {
        attempt.wants.extend(note(leases, key, check, now));
    }
    if !key.admits(check.cost, now) {
        return attempt;
    }
    let (outcome, taken) = key.spend(check, now);
    hot_keys.counts.spend(&taken);
    drop(hot_keys);
    let decision = Decision::of_one(outcome, Source::Lease);
    attempt.decided = Some(Decided { decision, receipt: Receipt::of_one(leases.id, taken) });
    attempt
}

/// Spends the units of all checks, which the caller has found to be admitted.
fn spend(leases: &Leases, locked: &mut Locked<'_, HotKeys>, checks: &[Check], now: u64) -> Decided {
    let mut taken: SmallVec<[Taken; 1]> = SmallVec::with_capacity(checks.len());
    let outcomes = checks.iter().enumerate().map(|(index, check)| {
        let (hash, hot_keys) = locked.of(index);
        let (outcome, part) = hot_keys.find(hash, &check.counter).expect("it is hot").spend(check, now);
        hot_keys.counts.spend(&part);
        taken.push(part);
        outcome
    });
    let decision = Decision::new(outcomes, Source::Lease);
    Decided { decision, receipt: Receipt::new(leases.id, taken) }
}

/// Notes the demand of one check; a lease that its key wants is marked as in flight, so that no other request causes
/// one.
fn note(leases: &Leases, key: &mut HotKey, check: &Check, now: u64) -> Option<Want> {
    let quota = check.counter.quota();
    key.rate.note(now, lifetime(quota), check.cost);
    key.request(check.cost, leases.most(quota), now)
}
