//! Rules: the part of a policy that is not about HTTP.
//!
//! A policy holds a rule and adds how requests are matched to it. So policies and rules behave alike, and share their
//! counters where their names, keys and quotas agree.

use std::fmt;

use super::TierLookup;
use crate::core::error::built;
use crate::core::{Ban, Error, Key, Limit, Mode, PolicyName, Quota, Requirement, Settles};
use crate::store::BanCheck;

/// Named quota that a [`Limiter`](crate::Limiter) decides by, for any key.
///
/// A [`Policy`](crate::Policy) is a rule and the conditions under which it applies to an HTTP request. If an option is
/// set again, the last value applies.
///
/// # Shared counters
///
/// A rule and a policy with the same name, or two rules with the same name, share their counters if the store, the key,
/// the algorithm and the window are the same, also in several processes. The limit, the cost and a [ban](Self::ban) may
/// differ. A tool for [operators](crate::Limiter#operators) sees the counters of a service in this way.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Quota, Rule};
///
/// // The second rule is on trial: it counts, and denies nothing.
/// let limiter = Limiter::new(MemoryStore::new(), [
///     Rule::new("mail", Quota::per_hour(100)),
///     Rule::new("mail-daily", Quota::per_hour(1_000)).shadow(),
/// ]);
/// # let _ = limiter;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    limit: Limit,
    cost: u64,
    mode: Mode,
    settles: Settles,
    reserve: Option<Share>,
    tiers: Option<TierLookup>,
    ban: Option<BanCheck>,
}

impl Rule {
    /// Creates a rule that is enforced, with a cost of 1 unit.
    ///
    /// # Panics
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`: see [`PolicyName`].
    #[track_caller]
    pub fn new(name: &str, quota: Quota) -> Self {
        built(Self::try_new(name, quota))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`: see [`PolicyName`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, Rule};
    ///
    /// let rule = Rule::try_new("mail", Quota::per_hour(100))?;
    /// assert_eq!(rule.name().as_str(), "mail");
    /// assert!(Rule::try_new("e-mail!", Quota::per_hour(100)).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn try_new(name: &str, quota: Quota) -> Result<Self, Error> {
        Ok(Self {
            limit: Limit::new(name.try_into()?, quota),
            cost: 1,
            mode: Mode::Enforce,
            settles: Settles::AsTaken,
            reserve: None,
            tiers: None,
            ban: None,
        })
    }

    /// Sets how many units a check takes, 1 by default.
    ///
    /// A cost of 0 takes nothing and is always allowed, unless the key is [banned](Self::ban). A limiter does not build
    /// with a cost above the [capacity](Quota::capacity), which would never be allowed.
    /// [`Limiter::check_n`](crate::Limiter::check_n) sets the cost of a single check.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("export", Quota::per_hour(100)).cost(60)]);
    /// let ada = Key::new("user", "ada");
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// assert!(!limiter.check(&ada).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost(self, units: u64) -> Self {
        Self { cost: units, ..self }
    }

    /// Sets shadow mode, to try a rule on real traffic. In shadow mode, the rule decides and counts, and never denies.
    ///
    /// Its denials are in [`Decision::outcomes`](crate::Decision::outcomes) and in the metrics. A check that the rule
    /// would deny takes nothing from it.
    pub fn shadow(self) -> Self {
        Self { mode: Mode::Shadow, ..self }
    }

    /// Sets a ban: after a number of denials by this rule within a window, the key is denied for a time.
    ///
    /// During a ban all checks of the key are denied, whatever they cost, and take nothing from any rule. Checks that
    /// [`Limiter::until_ready`](crate::Limiter::until_ready) repeats count as denials, too. Rules of one name share the
    /// bans of a key, in the same way as its counters. Not all [stores](crate::store::Store::capabilities) have bans.
    ///
    /// A rule sees and lifts the bans of a rule with other numbers. A rule without a ban shows none.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// const HOUR: Duration = Duration::from_secs(3_600);
    /// let rule = Rule::new("mail", Quota::per_hour(1)).ban(Ban::new(2, HOUR, 24 * HOUR));
    /// let limiter = Limiter::new(MemoryStore::new(), [rule]);
    /// let ada = Key::new("user", "ada");
    /// for _ in 0..2 {
    ///     assert!(!limiter.check(&ada).await?.is_banned());
    /// }
    /// assert!(limiter.check(&ada).await?.is_banned());
    ///
    /// limiter.lift_ban(&ada).await?;
    /// assert!(!limiter.check(&ada).await?.is_banned());
    /// # Ok(())
    /// # }
    /// ```
    pub fn ban(self, ban: Ban) -> Self {
        self.with_ban(ban, true)
    }

    pub(crate) fn ban_by_outcome(self, ban: Ban) -> Self {
        self.with_ban(ban, false)
    }

    fn with_ban(self, ban: Ban, counts: bool) -> Self {
        let limit = Some(Limit::new(self.name().clone(), Quota::from_ban(&ban)));
        Self { ban: Some(BanCheck { counts, limit, ..BanCheck::new(ban) }), ..self }
    }

    /// Sets a lookup of the quota by key. The quota of the rule applies where the lookup returns none.
    ///
    /// A client whose limit or burst changes keeps the units used. A quota with another window or algorithm starts with
    /// fresh state.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tollgate::key::Lookup;
    /// use tollgate::policy::TierLookup;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// async fn plan(user: Lookup) -> Result<Option<Quota>, Infallible> {
    ///     Ok((user.key().as_str() == "user:ada").then_some(Quota::per_hour(5_000)))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let rule = Rule::new("mail", Quota::per_hour(100)).tier_lookup(TierLookup::new(plan));
    /// let limiter = Limiter::new(MemoryStore::new(), [rule]);
    /// assert_eq!(limiter.check(&Key::new("user", "ada")).await?.outcomes()[0].limit(), 5_000);
    /// assert_eq!(limiter.check(&Key::new("user", "bob")).await?.outcomes()[0].limit(), 100);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "lookup")]
    pub fn tier_lookup(self, lookup: TierLookup) -> Self {
        Self { tiers: Some(lookup), ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &PolicyName {
        &self.limit.policy
    }

    /// Returns the quota that applies unless a lookup returns another.
    pub fn quota(&self) -> &Quota {
        &self.limit.quota
    }

    pub(crate) fn without_tiers(self) -> Self {
        Self { tiers: None, ..self }
    }

    pub(crate) fn settled_by_outcome(self) -> Self {
        Self { settles: Settles::ByOutcome, ..self }
    }

    pub(crate) fn reserving(self, share: Share) -> Self {
        Self { reserve: Some(share), ..self }
    }

    /// Returns the cost and the capacity, if the cost exceeds it and no lookup may change it: no check is ever allowed.
    pub(crate) fn excess(&self) -> Option<(u64, u64)> {
        // The reserve does not matter, because critical checks may use it.
        let (cost, capacity) = (self.cost, self.quota().capacity());
        (cost > capacity && self.tiers.is_none()).then_some((cost, capacity))
    }

    /// Interns the rule for a layer or limiter, which all threads use at once.
    pub(crate) fn interned(self) -> Self {
        let ban = self.ban.map(|ban| BanCheck { limit: ban.limit.map(Limit::interned), ..ban });
        Self { limit: self.limit.interned(), ban, ..self }
    }

    #[inline]
    pub(crate) fn limit(&self, tier: Option<Quota>) -> Limit {
        match tier {
            Some(quota) if quota != *self.quota() => Limit::new(self.name().clone(), quota),
            _ => self.limit.clone(),
        }
    }

    pub(crate) fn units(&self) -> u64 {
        self.cost
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn settles(&self) -> Settles {
        self.settles
    }

    pub(crate) fn settles_by(&self, quota: &Quota) -> Settles {
        if quota.facts().held { Settles::ByOutcome } else { self.settles }
    }

    pub(crate) fn banning(&self) -> Option<Ban> {
        self.ban.as_ref().map(|ban| ban.ban)
    }

    pub(crate) fn ban_check(&self) -> Option<&BanCheck> {
        self.ban.as_ref()
    }

    pub(crate) fn reserve(&self) -> Option<Share> {
        self.reserve
    }

    pub(crate) fn tiers(&self) -> Option<&TierLookup> {
        self.tiers.as_ref()
    }

    pub(crate) fn requirement(&self) -> Requirement<'_> {
        let settles = self.settles_by(self.quota());
        let (reserves, bans) = (self.reserve.is_some(), self.ban.is_some());
        Requirement { settles, reserves, bans, ..Requirement::new(self.name(), self.quota()) }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("name", self.name()).field("quota", self.quota()).finish_non_exhaustive()
    }
}

const MILLION: u32 = 1_000_000;

/// Share of the capacity, in millionths: 1 to 999,999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// Rounds a fraction to millionths, at least one and not all. Fails if `fraction` is not above 0 and below 1.
    pub(crate) fn new(fraction: f64) -> Result<Self, Error> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::invalid(format!(
                "reserve {fraction} is not allowed: use a fraction above 0 and below 1"
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 999,999")]
        let millionths = ((fraction * f64::from(MILLION)).round() as u32).clamp(1, MILLION - 1);
        Ok(Self(millionths))
    }

    /// Returns the units that must remain after a check that is not critical, rounded up.
    pub(crate) fn units(self, quota: &Quota) -> u64 {
        let kept = (u128::from(quota.capacity()) * u128::from(self.0)).div_ceil(u128::from(MILLION));
        u64::try_from(kept).unwrap_or(u64::MAX)
    }
}

fn is_shared(key: &Key) -> bool {
    matches!(key.as_str(), "anonymous:" | "unknown:") || key.kind() == "ambiguous"
}

#[derive(Clone, Debug)]
pub(crate) struct RuleKeys {
    /// `None` if it is not known, because a closure makes the keys.
    kind: Option<Box<str>>,
    has_scope: bool,
}

impl RuleKeys {
    pub(crate) fn new(kind: Option<Box<str>>, has_scope: bool) -> Self {
        Self { kind, has_scope }
    }

    pub(super) fn are_for(&self, key: &Key) -> bool {
        !self.has_scope && (self.kind.as_deref() == Some(key.kind()) || is_shared(key))
    }

    pub(super) fn may_make(&self, key: &Key) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == key.kind()) || is_shared(key)
    }

    pub(super) fn describe(&self, name: &PolicyName) -> String {
        match (self.kind.as_deref(), self.has_scope) {
            (Some(kind), false) => format!("{:?} has keys of kind {kind:?}", name.as_str()),
            (Some(kind), true) => format!("{:?} has keys of kind {kind:?}, of some requests only", name.as_str()),
            (None, _) => format!("{:?} has keys of a closure", name.as_str()),
        }
    }
}
