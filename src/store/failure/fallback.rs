//! Deciding with this process's share of each quota.

use smallvec::SmallVec;

use crate::decision::{Decision, Source};
use crate::quota::Algorithm;
use crate::store::{Answer, Change, Check, Counter, Deadline, Decided, MemoryStore, Receipt, Store, Taken};
use crate::{Error, Quota};

/// Decides against one instance's share of each quota; what is shown is the configured quota.
pub(super) fn decide(local: &MemoryStore, instances: u64, checks: &[Check]) -> Result<Decided, Error> {
    let shares: SmallVec<[Check; 2]> = checks.iter().map(|check| share(check, instances)).collect();
    let Answer::Ready(decided) = local.decide(&shares, Deadline::none()) else {
        unreachable!("memory answers at once")
    };
    decided.map(|Decided { decision, receipt }| {
        let receipt = with_debts(local, checks, &shares, &decision, receipt);
        let decision = decision.with_quotas_of(checks, Source::Fallback);
        Decided { decision, receipt }
    })
}

/// A share admits a cost above itself when it is full.
fn share(check: &Check, instances: u64) -> Check {
    let (quota, floor) = (check.counter.quota.divided(instances), check.floor / instances);
    let most = quota.capacity();
    let fits = check.cost.saturating_add(check.floor) <= check.counter.quota.capacity();
    let cost = match check.cost {
        0 => 0,
        cost if fits => cost.min(most - floor),
        cost => cost.max(most + 1),
    };
    let counter = Counter { quota, ..check.counter.clone() };
    Check { counter, cost, floor, ..*check }
}

/// Charges what was admitted above a share, to be paid before the next request is admitted; returns
/// a receipt for all of it.
fn with_debts(
    local: &MemoryStore,
    checks: &[Check],
    shares: &[Check],
    decision: &Decision,
    receipt: Receipt,
) -> Receipt {
    let above = |check: &Check, share: &Check| check.cost.saturating_sub(share.cost);
    if !decision.is_allowed() || checks.iter().zip(shares).all(|(check, share)| above(check, share) == 0) {
        return receipt;
    }
    let all = receipt.taken().iter().zip(checks.iter().zip(shares)).map(|(taken, (check, share))| {
        let debt = if taken.units == 0 { 0 } else { above(check, share) };
        if debt > 0 {
            charge(local, check, share, debt);
        }
        Taken { units: taken.units + debt, ..taken.clone() }
    });
    Receipt::new(receipt.store(), all)
}

/// Charges a debt, which may be larger than what a share can owe.
fn charge(local: &MemoryStore, check: &Check, share: &Check, debt: u64) {
    let (whole, part) = (check.counter.quota, share.counter.quota);
    let quota = match whole.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => part.with_units(part.limit(), whole.capacity()),
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => whole,
    };
    let counter = Counter { quota, ..share.counter.clone() };
    let Answer::Ready(_) = local.adjust(&counter, Change::Charge(debt)) else { unreachable!("memory answers at once") };
}

impl Quota {
    /// One instance's share of the quota, rounded up.
    fn divided(self, instances: u64) -> Self {
        self.with_units(self.limit().div_ceil(instances), self.capacity().div_ceil(instances))
    }
}
