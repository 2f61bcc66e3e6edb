//! What happens when the store cannot decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;

use super::{Answer, Change, Check, Counter, Decided, MemoryStore, Mode, Receipt, Settlement, Store};
use crate::decision::{Decision, Outcome, Source};
use crate::{Error, Quota};

/// What a layer does with a request its store could not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// A local memory store decides, with quotas divided by the number of instances.
    #[default]
    Fallback,
    /// The request is admitted.
    Allow,
    /// The request is refused with 503.
    Deny,
}

/// A store around a store that answers when the inner one cannot.
#[derive(Debug)]
pub(crate) struct FailureStore<S> {
    inner: S,
    rule: OnFailure,
    local: MemoryStore,
    instances: u64,
}

impl<S: Store> FailureStore<S> {
    pub(crate) fn new(inner: S, rule: OnFailure, instances: u32) -> Self {
        Self { inner, rule, local: MemoryStore::new(), instances: instances.into() }
    }
}

impl<S: Store + Clone> Store for FailureStore<S> {
    fn decide(&self, checks: &[Check]) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            // No policy applies, so a store that is away has nothing to withhold.
            let receipt = Receipt::new(self.local.id(), []);
            return Answer::Ready(Ok(Decided { decision: Decision::new([], Source::Store), receipt }));
        }
        match self.inner.decide(checks) {
            decided @ Answer::Ready(Ok(_)) => decided,
            Answer::Ready(Err(error)) => Answer::Ready(instead(self.rule, &self.local, self.instances, checks, error)),
            Answer::Pending(pending) => {
                let (rule, local, instances) = (self.rule, self.local.clone(), self.instances);
                let checks: SmallVec<[Check; 2]> = checks.iter().cloned().collect();
                Answer::pending(async move {
                    pending.await.or_else(|error| instead(rule, &local, instances, &checks, error))
                })
            }
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) {
        if receipt.store() == self.local.id() {
            self.local.settle(receipt, changes);
        } else {
            self.inner.settle(receipt, changes);
        }
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<(), Error>> {
        self.inner.adjust(counter, change)
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        self.inner.reset(counter)
    }
}

fn instead(
    rule: OnFailure,
    local: &MemoryStore,
    instances: u64,
    checks: &[Check],
    error: Error,
) -> Result<Decided, Error> {
    log(rule, &error);
    match rule {
        OnFailure::Fallback => decide_locally(local, instances, checks),
        OnFailure::Deny if checks.iter().any(|check| check.mode == Mode::Enforce) => Err(error),
        OnFailure::Allow | OnFailure::Deny => Ok(admit(local, checks)),
    }
}

/// Logs a failure, but not one for each request of an outage.
fn log(rule: OnFailure, error: &Error) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if LAST.swap(second, Ordering::Relaxed) != second {
        tracing::warn!(error = format!("{error:#}"), ?rule, "the store could not decide");
    }
}

/// Decides against this process's share of each quota; what is shown is the configured quota.
fn decide_locally(local: &MemoryStore, instances: u64, checks: &[Check]) -> Result<Decided, Error> {
    let shares: SmallVec<[Check; 2]> = checks.iter().map(|check| share(check, instances)).collect();
    let Answer::Ready(decided) = local.decide(&shares) else { unreachable!("memory answers at once") };
    decided.map(|Decided { decision, receipt }| {
        leave_debt(local, checks, &shares, &decision);
        let decision = decision.with_quotas_of(checks, Source::Fallback);
        Decided { decision, receipt }
    })
}

/// A share admits a cost above itself when it is full.
fn share(check: &Check, instances: u64) -> Check {
    let quota = check.counter.quota.divided(instances);
    let most = quota.capacity();
    let counter = Counter { quota, ..check.counter.clone() };
    let cost = if check.cost <= check.counter.quota.capacity() { check.cost.min(most) } else { check.cost };
    Check { counter, cost, floor: check.floor / instances, ..*check }
}

/// Charges what was admitted above a share, to be paid before the next request is admitted.
fn leave_debt(local: &MemoryStore, checks: &[Check], shares: &[Check], decision: &Decision) {
    let taken = checks.iter().zip(shares).zip(decision.outcomes()).filter(|(_, outcome)| outcome.is_allowed());
    for ((check, share), _) in taken.filter(|((check, share), _)| decision.is_allowed() && check.cost > share.cost) {
        let Answer::Ready(_) = local.adjust(&share.counter, Change::Charge(check.cost - share.cost)) else {
            unreachable!("memory answers at once")
        };
    }
}

fn admit(local: &MemoryStore, checks: &[Check]) -> Decided {
    let outcomes = checks.iter().map(|check| Outcome::allowed(check, check.counter.quota.capacity()));
    Decided { decision: Decision::new(outcomes, Source::Open), receipt: Receipt::new(local.id(), []) }
}

/// A store as the layer keeps it.
pub(crate) type SharedStore = Arc<dyn Store>;

impl Quota {
    /// One instance's share of the quota, rounded up.
    fn divided(self, instances: u64) -> Self {
        self.with_units(self.limit().div_ceil(instances), self.capacity().div_ceil(instances))
    }
}
