//! Allowing requests with leases.
//!
//! A request is allowed if leases or overdrafts cover all checks, and is left to the inner store otherwise, never
//! denied. Its demand is counted, and the leases it needs are requested after the locks are released.
//!
//! Invariant: all checks are spent under the locks of all their shards, or none is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Leases;
use super::call::request_lease;
use crate::core::decision::{Decision, Source};
use crate::store::lease::hot_key::{Back, LeaseRequest};
use crate::store::{Check, Receipt, ReceiptItem, StoreDecision};

/// Leases to request and to return once no lock is held.
type Tasks = (SmallVec<[LeaseRequest; 2]>, Vec<Back>);

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

/// Counts demand only if all keys are hot, because leases cannot cover the others.
fn attempt(leases: &Leases, checks: &[Check], now: u64, (wants, backs): &mut Tasks) -> Option<StoreDecision> {
    let hashes: SmallVec<[u64; 4]> = checks.iter().map(|check| leases.hash(&check.counter)).collect();
    let mut locked = leases.shards.lock_all(hashes.iter().copied());
    let each = || checks.iter().zip(hashes.iter().copied());
    let mut hot = true;
    for (check, hash) in each() {
        match locked.part_mut(hash).heat(hash, &check.counter, now) {
            Some(key) => key.refresh(&check.counter, now, || leases.wall(check.counter.quota()), backs),
            None => hot = false,
        }
    }
    let mut admitted = hot;
    for (check, hash) in each().filter(|_| hot) {
        let key = locked.part_mut(hash).find(hash, &check.counter).expect("it is hot");
        wants.extend(key.note(check, leases.most(check.counter.quota()), now));
        admitted &= key.admits(check.cost, now);
    }
    if !admitted {
        // Units that are not spent are not owed either.
        for (check, hash) in each() {
            if let Some(key) = locked.part_mut(hash).find(hash, &check.counter) {
                key.owe_no_more();
            }
        }
        return None;
    }
    let mut taken: SmallVec<[ReceiptItem; 1]> = SmallVec::with_capacity(checks.len());
    let outcomes = each().map(|(check, hash)| {
        let hot_keys = locked.part_mut(hash);
        let (outcome, part) = hot_keys.find(hash, &check.counter).expect("it is hot").spend(check, now);
        hot_keys.counts.spend(&part);
        taken.push(part);
        outcome
    });
    let decision = Decision::new(outcomes, Source::Lease);
    Some(StoreDecision { decision, receipt: Receipt::from_items(leases.id, taken) })
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
    Some(StoreDecision { decision, receipt: Receipt::from_items(leases.id, SmallVec::from_buf([taken])) })
}

/// The inner store decides peeks, reserves, bans, leaky queues, slots, and checks that share a counter.
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
