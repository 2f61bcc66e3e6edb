//! Decisions by this process's share of each quota, while the shared store is unavailable.
//!
//! A quota is divided by the number of instances, rounded up, so that all instances together allow the quota, or
//! slightly more. A cost that fits the whole quota but not the share is allowed when the share is full, and the rest is
//! a debt, which is repaid at the share's rate. Clients see the configured quota, with what remains of the share.
//!
//! A separate memory store has the counters. No state is copied from or to the shared store.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::core::decision::{Decision, Source};
use crate::core::{Error, Quota};
use crate::store::{
    Ask, Change, ChangeResult, Check, MaybeFuture, MemoryStore, Receipt, ReceiptItem, Settlement, Store, StoreDecision,
};

impl MemoryStore {
    /// Decides by this instance's share of each limit, like a layer whose store is unavailable: of 4 instances, each
    /// has 25 of 100.
    ///
    /// Limits and bursts are divided and rounded up, at least 1. A cost that fits the limit but not the share is
    /// allowed when the share is full, and the rest is a debt, repaid at the share's rate. The decision has the limits
    /// of the checks, with what remains of the share, and the [source](Decision::source)
    /// [`Fallback`](Source::Fallback). The receipt is of this store. Use a memory store that decides nothing else.
    ///
    /// Debts are not exact: where capacity times window is above 2^52 ticks, such as 5 GB a day, most of one may be
    /// forgiven, and of two costs above the share at the same time both may be allowed.
    ///
    /// # Errors
    ///
    /// The errors of [`decide`](Store::decide).
    pub fn decide_share(&self, checks: &[Check], instances: NonZeroU64) -> Result<StoreDecision, Error> {
        let shares: SmallVec<[Check; 2]> = checks.iter().map(|check| share(check, instances.get())).collect();
        let MaybeFuture::Ready(decided) = self.decide(&shares, Ask::default()) else {
            unreachable!("memory decides at once")
        };
        decided.map(|StoreDecision { decision, receipt }| {
            let receipt = with_debts(self, checks, &shares, &decision, receipt);
            let decision = decision.with_quotas_of(checks, Source::Fallback);
            StoreDecision::new(decision, receipt)
        })
    }
}

/// A cost that fits the whole quota is cut to the share, so that a full share allows it. Any other cost never fits.
fn share(check: &Check, instances: u64) -> Check {
    let (quota, floor) = (divided(*check.counter.quota(), instances), check.floor / instances);
    let most = quota.capacity();
    let fits = check.cost.saturating_add(check.floor) <= check.counter.quota().capacity();
    let cost = match check.cost {
        0 => 0,
        cost if fits => cost.min(most - floor),
        cost => cost.max(most + 1),
    };
    let counter = check.counter.clone().with_quota(quota);
    Check { counter, cost, floor, ban: check.ban.clone(), ..*check }
}

fn with_debts(
    local: &MemoryStore,
    checks: &[Check],
    shares: &[Check],
    decision: &Decision,
    receipt: Receipt,
) -> Receipt {
    // No request would hold the slots of a debt.
    let is_above = |(check, share): (&Check, &Check)| check.cost > share.cost && !check.counter.quota().facts().held;
    if !decision.is_allowed() || !checks.iter().zip(shares).any(is_above) {
        return receipt;
    }
    let all = receipt.items().iter().zip(checks.iter().zip(shares)).map(|(taken, (check, share))| {
        let has_debt = taken.units > 0 && is_above((check, share));
        if has_debt { take_all(local, check, taken) } else { taken.clone() }
    });
    Receipt::new(receipt.store(), all)
}

fn take_all(local: &MemoryStore, check: &Check, taken: &ReceiptItem) -> ReceiptItem {
    // First, so that one charge with one stamp covers the whole cost.
    let share = Receipt::new(local.id(), [taken.clone()]);
    drop(local.settle(share, &[Settlement::new(0, Change::Refund(taken.units))]));
    let (whole, part) = (check.counter.quota(), taken.counter.quota());
    // A debt is repaid at the share's rate, and bounded by the capacity of the whole.
    let quota = if whole.facts().returns_evenly { part.with_units(part.limit(), whole.capacity()) } else { *whole };
    let counter = taken.counter.clone().with_quota(quota);
    let MaybeFuture::Ready(Ok(ChangeResult { units, stamp, .. })) = local.adjust(&counter, Change::Charge(check.cost))
    else {
        unreachable!("memory decides at once")
    };
    taken.clone().units(units).stamp(stamp)
}

/// Rounds limit, capacity and burst up, to at least 1.
fn divided(quota: Quota, instances: u64) -> Quota {
    let part = quota.with_units(quota.limit().div_ceil(instances), quota.capacity().div_ceil(instances));
    if !quota.facts().stands_in_line {
        return part;
    }
    part.try_nodelay(quota.starting_at_once().div_ceil(instances)).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Key;
    use crate::store::Counter;

    #[test]
    fn a_cost_above_a_share_takes_all_of_it_and_no_slots_that_nobody_holds() {
        let policy = "streams".try_into().expect("a valid name");
        let counter = Counter::new(policy, Key::new("user", "ada"), Quota::concurrency(8));
        let (local, check) = (MemoryStore::new(), Check::new(counter, 5));
        let four = NonZeroU64::new(4).expect("it is not zero");
        let taken = local.decide_share(std::slice::from_ref(&check), four).expect("memory decides");
        assert_eq!(taken.receipt.items()[0].units, 2);
        let refused = local.decide_share(&[Check { cost: 1, ..check.clone() }], four).expect("memory decides");
        assert!(!refused.decision.is_allowed());
        drop(local.settle(taken.receipt, &[Settlement::new(0, Change::Refund(2))]));
        assert!(local.decide_share(&[check], four).expect("memory decides").decision.is_allowed(), "it left no debt");
    }
}
