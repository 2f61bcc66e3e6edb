//! Admitting a request with leases.
//!
//! The checks come in. An admitted decision goes out if leases or overdrafts cover all of them, and `None` otherwise:
//! nothing is ever refused here. On the way the request's demand is noted, and leases that its keys want are requested
//! after the locks have been released.
//!
//! Invariant: all checks are spent under the locks of all their parts, or none is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Leases;
use super::call::request_lease;
use crate::core::decision::{Decision, Source};
use crate::store::lease::hot_key::{Back, Want};
use crate::store::lease::hot_keys::HotKeys;
use crate::store::map::Locked;
use crate::store::{Check, Receipt, ReceiptItem, StoreDecision};

/// What a request makes others do, once no lock is held: leases to request; and those to return, which were found to be
/// over, with debts to charge.
type Tasks = (SmallVec<[Want; 2]>, Vec<Back>);

/// Admits a request that leases cover in full, or overdrafts; `None` leaves the decision to the inner store.
///
/// New leases are requested. A closed store admits nothing.
#[inline]
pub(super) fn admit(leases: &Arc<Leases>, checks: &[Check]) -> Option<StoreDecision> {
    if leases.closed.load(Ordering::Relaxed) || !is_plain(checks) {
        return None;
    }
    let (now, mut tasks) = (leases.now(), Tasks::default());
    let decided = match checks {
        [check] => attempt_one(leases, check, now, &mut tasks),
        _ => attempt(leases, checks, now, &mut tasks),
    };
    let (wants, backs) = tasks;
    leases.give_back(backs, now);
    wants.into_iter().for_each(|want| request_lease(leases, want));
    decided
}

/// Spends all checks or none, under the locks of all. Demand is noted only of requests whose
/// keys all are hot: leases cannot cover the others, however many there are.
fn attempt(leases: &Leases, checks: &[Check], now: u64, (wants, backs): &mut Tasks) -> Option<StoreDecision> {
    let mut locked = leases.shards.lock_all(checks.iter().map(|check| leases.hash(&check.counter)));
    let mut hot = true;
    for (index, check) in checks.iter().enumerate() {
        let (hash, hot_keys) = locked.of(index);
        match hot_keys.heat(hash, &check.counter, now) {
            Some(key) => key.refresh(&check.counter, now, || leases.wall(check.counter.quota()), backs),
            None => hot = false,
        }
    }
    let mut admitted = hot;
    for (index, check) in checks.iter().enumerate().filter(|_| hot) {
        let (hash, hot_keys) = locked.of(index);
        let key = hot_keys.find(hash, &check.counter).expect("it is hot");
        wants.extend(key.note(check, leases.most(check.counter.quota()), now));
        admitted &= key.admits(check.cost, now);
    }
    if !admitted {
        // What is not spent is not owed, either.
        for (index, check) in checks.iter().enumerate() {
            let (hash, hot_keys) = locked.of(index);
            if let Some(key) = hot_keys.find(hash, &check.counter) {
                key.owe_no_more();
            }
        }
        return None;
    }
    Some(spend(leases, &mut locked, checks, now))
}

fn attempt_one(leases: &Leases, check: &Check, now: u64, (wants, backs): &mut Tasks) -> Option<StoreDecision> {
    let hash = leases.hash(&check.counter);
    let mut hot_keys = leases.shards.lock(hash);
    let key = hot_keys.heat(hash, &check.counter, now)?;
    key.refresh(&check.counter, now, || leases.wall(check.counter.quota()), backs);
    wants.extend(key.note(check, leases.most(check.counter.quota()), now));
    if !key.admits(check.cost, now) {
        return None;
    }
    let (outcome, taken) = key.spend(check, now);
    hot_keys.counts.spend(&taken);
    drop(hot_keys);
    let decision = Decision::new([outcome], Source::Lease);
    Some(StoreDecision { decision, receipt: Receipt::of_one(leases.id, taken) })
}

/// Spends the units of all checks, which the caller has found to be admitted.
fn spend(leases: &Leases, locked: &mut Locked<'_, HotKeys>, checks: &[Check], now: u64) -> StoreDecision {
    let mut taken: SmallVec<[ReceiptItem; 1]> = SmallVec::with_capacity(checks.len());
    let outcomes = checks.iter().enumerate().map(|(index, check)| {
        let (hash, hot_keys) = locked.of(index);
        let (outcome, part) = hot_keys.find(hash, &check.counter).expect("it is hot").spend(check, now);
        hot_keys.counts.spend(&part);
        taken.push(part);
        outcome
    });
    let decision = Decision::new(outcomes, Source::Lease);
    StoreDecision { decision, receipt: Receipt::new(leases.id, taken) }
}

/// Returns whether a request can be decided by numbers that this process has: each check takes
/// something, keeps no floor, has no ban, queues nowhere, holds no slot and counts alone at its counter. Looks,
/// reserves, bans, leaky queues, slots and checks that share a counter are for the inner store, and so is
/// a request without checks.
fn is_plain(checks: &[Check]) -> bool {
    let plain = |check: &Check| {
        let is_counted = check.cost > 0 && check.floor == 0 && check.ban.is_none();
        is_counted && !check.counter.quota().facts().only_in_store()
    };
    let repeats = |(index, check): (usize, &Check)| {
        checks[..index].iter().any(|earlier| earlier.counter.shares_state(&check.counter))
    };
    !checks.is_empty() && checks.iter().all(plain) && !checks.iter().enumerate().any(repeats)
}
