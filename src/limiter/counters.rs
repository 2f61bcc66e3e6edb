//! Counters of a key, or of a request: permits take any number of units of them, by the rules in force.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::limits::{InForce, Limits};
use super::resolve::{ByOverrides, looks};
use super::rule::Rule;
use super::take::Permit;
use super::{DecidingStore, Limiter};
use crate::core::{Decision, Error, Key, Lines, Overridden, PolicyName, Quota};
use crate::store::{Ask, Check, Counter, Settles, Store, StoreDecision};

type Each = SmallVec<[Check; 2]>;

/// Counters of a key by the rules of a limiter, or of a request by the policies of its layer.
///
/// They are for work that takes units while it runs, such as bytes and messages. [`Limiter::counters`] returns the
/// counters of a key, and [`RateLimitHandle::counters`](crate::RateLimitHandle::counters) the counters of a request.
/// They follow rules that are replaced, but keep the quota of a tier.
///
/// Two values are equal if they have the same counters by the same rules, and the same limiter or layer.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_hour(1_000))]);
/// let ada = Key::new("user", "ada");
/// let counters = limiter.counters(&ada).await?;
/// assert_eq!(counters, limiter.counters(&ada).await?);
///
/// let (decision, permit) = counters.permit(400).await?;
/// assert!(decision.is_allowed());
/// // Only 100 bytes were sent.
/// let _slots = permit.spend_units(100);
/// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 900);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Counters {
    checks: Each,
    /// `true` where a check has the quota of its rule, and not the quota of a tier.
    follows: SmallVec<[bool; 2]>,
    source: Weak<dyn InForce>,
    store: DecidingStore,
}

impl Counters {
    /// The checks were made from `limits`. If units of a tier's quota cannot be taken, the rule keeps its own.
    pub(crate) fn new(limits: &Limits, checks: impl IntoIterator<Item = Check>) -> Self {
        let rule_of = |check: &Check| limits.rules.iter().find(|rule| check.counter.policy() == rule.name());
        let kept = |mut check: Check| {
            // An override may have changed the quota. Each permit applies those in force.
            if let (true, Some(rule)) = (check.overridden != Overridden::No, rule_of(&check)) {
                check.counter = Counter::from_limit(rule.limit(None), check.counter.key().clone());
                check.overridden = Overridden::No;
            }
            if let (Err(_), Some(rule)) = (has_units(check.counter.policy(), check.counter.quota()), rule_of(&check)) {
                warn_of_tier(rule.name().as_str());
                check.counter = Counter::from_limit(rule.limit(None), check.counter.key().clone());
            }
            // The floor may be a share of the quota.
            if let Some(share) = rule_of(&check).and_then(Rule::reserve).filter(|_| check.floor > 0) {
                check.floor = share.units(check.counter.quota());
            }
            // A denied permit is no strike, because clients do not choose its units. A banned key still gets none.
            check.cost(0).settles(Settles::ByOutcome).without_strikes()
        };
        let checks: Each = checks.into_iter().map(kept).collect();
        let follows = |check: &Check| rule_of(check).is_some_and(|rule| check.counter.quota() == rule.quota());
        let follows = checks.iter().map(follows).collect();
        Self { checks, follows, source: Weak::clone(&limits.source), store: Arc::clone(&limits.store) }
    }

    /// Takes units of every rule in force that has one of these counters.
    ///
    /// The permit refunds them unless it is [spent](Permit::spend), in full or [in part](Permit::spend_units). A denial
    /// comes with a permit for nothing.
    ///
    /// A denied permit is no strike of a [ban](crate::Rule::ban), and metrics do not count it among decisions.
    ///
    /// # Errors
    ///
    /// If the store fails, [`OnFailure::Deny`](crate::OnFailure::Deny) is set and a rule is enforced.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped while the store decides, units that it allows may stay taken.
    pub async fn permit(&self, units: u64) -> Result<(Decision, Permit), Error> {
        let checks: Each = self.in_force().map(|check| check.cost(units)).collect();
        let StoreDecision { decision, receipt } = self.store.decide(&checks, Ask::default()).wait().await?;
        Ok((decision, Permit::new(&self.store, receipt)))
    }

    /// Returns the checks of a permit for no units, by the rules in force.
    ///
    /// The checks have the quotas, the [floors](Check::floor) that stay free for others, and the modes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_hour(1_000))]);
    /// let checks = limiter.counters(&Key::new("user", "ada")).await?.checks();
    /// assert_eq!(checks[0].counter.quota().capacity(), 1_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn checks(&self) -> Vec<Check> {
        self.in_force().collect()
    }

    fn in_force(&self) -> impl Iterator<Item = Check> {
        let limits = self.source.upgrade().map(|source| source.now());
        self.checks.iter().zip(&self.follows).filter_map(move |(check, follows)| match &limits {
            Some(limits) => limits.overridden(by_rules(check, &limits.rules, *follows)?),
            None => Some(check.clone()),
        })
    }
}

impl PartialEq for Counters {
    fn eq(&self, other: &Self) -> bool {
        let have_one_source = ptr::addr_eq(self.source.as_ptr(), other.source.as_ptr());
        have_one_source
            && Arc::ptr_eq(&self.store, &other.store)
            && self.follows == other.follows
            && self.checks == other.checks
    }
}

impl Eq for Counters {}

impl Hash for Counters {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.checks.hash(state);
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = self.checks.iter().map(|check| check.counter.policy().as_str());
        f.debug_struct("Counters").field("policies", &policies.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Limiter {
    /// Returns the counters of a key. It takes nothing. [Permits](Counters::permit) take any number of units of these
    /// counters.
    ///
    /// The [cost](crate::Rule::cost) of the rules does not matter. The limiter of a [layer](crate::LiveLayer::limiter)
    /// takes units of all policies that it uses for the key, which count requests. So give messages their own limiter,
    /// or [name](Self::only) a policy.
    ///
    /// # Errors
    ///
    /// If no rule is for the key: see [`check`](Self::check). If a rule, or the tier of the key, has a
    /// [concurrency](crate::Quota::concurrency) or a [leaky bucket](crate::Quota::leaky_bucket), or the store cannot
    /// refund units.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_second(50))]);
    /// let counters = limiter.counters(&Key::new("user", "ada")).await?;
    /// assert!(!counters.permit(51).await?.0.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn counters(&self, key: &Key) -> Result<Counters, Error> {
        let limits = &*self.in_force.now();
        let places = self.places(limits, key)?;
        let mut rules = places.iter().map(|place| &limits.rules[*place]);
        rules.try_for_each(|rule| has_units(rule.name(), rule.quota()))?;
        limits.supports_refunds(&places)?;
        let checks = looks(limits, &places, key, ByOverrides::No).await?;
        checks.iter().try_for_each(|check| has_units(check.counter.policy(), check.counter.quota()))?;
        Ok(Counters::new(limits, checks))
    }
}

/// Fails if units of a quota cannot be taken by the number, and refunded.
pub(crate) fn has_units(policy: &PolicyName, quota: &Quota) -> Result<(), Error> {
    if !quota.facts().only_in_store() {
        return Ok(());
    }
    let (policy, algorithm) = (policy.as_str(), quota.algorithm().as_str());
    Err(Error::invalid(format!(
        "policy {policy:?}: a {algorithm} has no units that are taken by the number, and refunded: use a token_bucket, \
         or a window"
    )))
}

fn warn_of_tier(policy: &str) {
    static TIER: Lines = Lines::new();
    TIER.log(policy, |more| {
        tracing::warn!(code = "tier_without_portions", policy, more, "tier has no portions, using the policy's quota");
    });
}

fn by_rules(check: &Check, rules: &[Rule], follows: bool) -> Option<Check> {
    let rule = rules.iter().find(|rule| check.counter.policy() == rule.name())?;
    let ban = rule.ban_check().cloned().map(Box::new);
    let mut check = Check { ban, ..check.clone().mode(rule.mode()) }.without_strikes();
    if follows && has_units(rule.name(), rule.quota()).is_ok() {
        check.counter = Counter::from_limit(rule.limit(None), check.counter.key().clone());
    }
    if check.floor > 0 {
        check.floor = rule.reserve().map_or(0, |share| share.units(check.counter.quota()));
    }
    Some(check)
}
