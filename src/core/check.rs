//! Checks, which stores decide: one for each policy that applies to a request.
//!
//! Layers and limiters make checks from policies, keys and costs. Stores see nothing else of a request. A check names
//! its [`Counter`] by value, so stores need no registry of policies, and a policy can be replaced at any time.

use std::time::Duration;

use smallvec::SmallVec;

use super::limit::Limit;
use super::{Ban, Key, PolicyName, Quota};

/// The address of one counter: a policy, a key, and the quota that applies.
///
/// Cheap to clone: clones share the name and the quota. Two quotas with the same algorithm and window, or calendar,
/// share the state of the counter, whatever their limits, so a changed limit keeps the units used.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::Counter;
/// use tollgate::{Key, Quota};
///
/// let counter = Counter::new(PolicyName::try_from("mail")?, Key::new("user", "ada"), Quota::per_hour(100));
/// assert_eq!(counter.quota().limit(), 100);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Counter {
    limit: Limit,
    key: Key,
}

impl Counter {
    /// The counter of `key` under the policy of that name, which `quota` bounds.
    pub fn new(policy: PolicyName, key: Key, quota: Quota) -> Self {
        Self::from_limit(Limit::new(policy, quota), key)
    }

    #[inline]
    pub(crate) fn from_limit(limit: Limit, key: Key) -> Self {
        Self { limit, key }
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &PolicyName {
        &self.limit.policy
    }

    /// Returns the key that identifies the client.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the quota that applies.
    pub fn quota(&self) -> &Quota {
        &self.limit.quota
    }

    /// Returns the counter of the same policy and key with another quota.
    pub(crate) fn with_quota(self, quota: Quota) -> Self {
        if quota == *self.quota() {
            return self;
        }
        Self::new(self.policy().clone(), self.key, quota)
    }

    #[inline]
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn ban_counter(&self, ban: &BanCheck) -> Self {
        let quota = Quota::from_ban(&ban.ban);
        let made = ban.limit.clone().filter(|made| made.quota == quota && made.policy == *self.policy());
        Self::from_limit(made.unwrap_or_else(|| Limit::new(self.policy().clone(), quota)), self.key.clone())
    }

    pub(crate) fn is_ban(&self) -> bool {
        self.quota().is_ban()
    }

    pub(crate) fn shares_state(&self, other: &Counter) -> bool {
        // Compares the hashes first, because most policies of a layer have the same key.
        let (limit, other_limit) = (self.limit(), other.limit());
        limit.hash == other_limit.hash && limit.state == other_limit.state && self.key == other.key
    }
}

/// A request to take units from one counter.
///
/// The check *fits* if `cost + floor` units are left, and the key is not [banned](Self::ban). A store takes the units
/// of all checks of a request, or none: see [`Store::decide`](crate::store::Store::decide).
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
/// use tollgate::{Key, MemoryStore, Quota};
///
/// let (policy, key) = (PolicyName::try_from("mail")?, Key::new("user", "ada"));
/// let counter = Counter::new(policy, key, Quota::per_hour(100));
/// // 30 units, as long as 50 are left after them.
/// let check = Check::new(counter, 30).floor(50);
///
/// let store = MemoryStore::new();
/// let MaybeFuture::Ready(decided) = store.decide(&[check], Ask::default()) else {
///     unreachable!("a memory store decides at once");
/// };
/// assert!(decided?.decision.is_allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[non_exhaustive]
pub struct Check {
    /// The counter to take from.
    pub counter: Counter,
    /// Units to take. 0 is a peek, which takes nothing and always fits, unless the key is banned.
    pub cost: u64,
    /// Units that must remain after the cost was taken, such as a reserve that this check may not use.
    pub floor: u64,
    /// Whether the request is denied if this check does not fit.
    pub mode: Mode,
    /// Whether the units that the check takes may be refunded, depending on the outcome of the request.
    pub settles: Settles,
    /// The ban of the key, if the policy has one.
    pub ban: Option<Box<BanCheck>>,
    pub(crate) overridden: Overridden,
}

/// The ban of a [`Check`], which a store decides together with the quota.
///
/// A store checks whether the key is banned, together with the quotas of all checks. A check whose key is banned does
/// not fit, whatever its cost, and takes nothing. After the decision, each check that did not fit its own quota is a
/// strike, even if the request is denied: a denied request writes nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BanCheck {
    /// The ban.
    pub ban: Ban,
    /// Whether a check that does not fit its quota is a strike. Otherwise the store only checks whether the key is
    /// banned.
    pub counts: bool,
    /// Whether a peek stands for a check with a cost, and is a strike if one unit would not fit.
    pub(crate) tests: bool,
    pub(crate) only: bool,
    pub(crate) limit: Option<Limit>,
}

impl BanCheck {
    /// A ban whose strikes are the checks that do not fit.
    pub fn new(ban: Ban) -> Self {
        Self { ban, counts: true, tests: false, only: false, limit: None }
    }

    /// Only checks whether the key is banned: a check that does not fit is no strike.
    #[must_use]
    pub fn without_strikes(self) -> Self {
        Self { counts: false, ..self }
    }
}

impl Check {
    /// Creates an enforced check of `cost` units without a floor, which keeps the units it takes.
    ///
    /// Any number of units is valid: 0 is a peek, and a cost above the capacity of the quota never fits.
    pub fn new(counter: Counter, cost: u64) -> Self {
        Self {
            counter,
            cost,
            floor: 0,
            mode: Mode::Enforce,
            settles: Settles::AsTaken,
            ban: None,
            overridden: Overridden::No,
        }
    }

    /// Sets the units to take. 0 makes the check a peek.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the units that must remain after the cost was taken, by default 0.
    ///
    /// Any number is valid. If cost and floor are more than the capacity of the quota, the check never fits, unless it
    /// is a peek.
    pub fn floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }

    /// Sets whether the request is denied if the check does not fit, by default [`Mode::Enforce`].
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Sets whether the units that the check takes may be refunded, by default [`Settles::AsTaken`].
    pub fn settles(self, settles: Settles) -> Self {
        Self { settles, ..self }
    }

    /// Sets the ban of the key, by default none.
    ///
    /// Only stores that [support](crate::store::Store::capabilities) bans decide such a check.
    pub fn ban(self, ban: BanCheck) -> Self {
        Self { ban: Some(Box::new(ban)), ..self }
    }

    pub(crate) fn overridden(self, is: bool) -> Self {
        Self { overridden: if is { Overridden::Changed } else { Overridden::No }, ..self }
    }

    pub(crate) fn strikes(&self) -> bool {
        self.ban.as_ref().is_some_and(|ban| ban.counts && (self.cost > 0 || ban.tests))
    }

    pub(crate) fn without_strikes(self) -> Self {
        let ban = self.ban.map(|ban| Box::new(BanCheck { counts: false, tests: false, ..*ban }));
        Self { ban, ..self }
    }

    pub(crate) fn is_only_for_ban(&self) -> bool {
        self.ban.as_ref().is_some_and(|ban| ban.only)
    }
}

/// Whether an operator's override changed a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Overridden {
    #[default]
    No,
    Changed,
    /// `None` if there is no end.
    Denied(Option<Duration>),
}

pub(crate) type Checks = SmallVec<[Check; 1]>;

pub(crate) fn kept(checks: &[Check]) -> Checks {
    match checks {
        [check] => SmallVec::from_buf([check.clone()]),
        several => several.iter().cloned().collect(),
    }
}

/// Whether a check can deny the request.
///
/// # Examples
///
/// ```
/// use tollgate::store::Mode;
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(1)).shadow()]);
/// let ada = Key::new("user", "ada");
/// limiter.check(&ada).await?;
///
/// let decision = limiter.check(&ada).await?;
/// let outcome = &decision.outcomes()[0];
/// assert_eq!(outcome.mode(), Mode::Shadow);
/// assert!(decision.is_allowed() && !outcome.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The request is allowed only if this check fits. The default.
    #[default]
    Enforce,
    /// The check is decided and counted, but never denies the request. If it does not fit, it takes nothing.
    Shadow,
}

/// Whether units may be refunded.
///
/// A hint for stores that cache denials: where requests refund units, a cached denial could outlive its reason, so no
/// store of this crate denies such a check from its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settles {
    /// Units stay taken. A refund is an exception. The default.
    #[default]
    AsTaken,
    /// Units may be refunded, depending on the outcome of the request.
    ByOutcome,
}
