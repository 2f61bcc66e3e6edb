//! Limits without HTTP: rules over any key, for jobs, messages and streams.
//!
//! A [`Rule`] is a named quota. [`Limits`] are the current rules, the store that decides by them, and what happens when
//! it fails. A [`Limiter`] and an HTTP layer share them. They are replaced as a whole while in use: a decision ends by
//! the limits that it began with. A [`Plan`] holds the checks of one decision. Some may need a lookup first.
//!
//! This module calls stores and lookups, and does not depend on HTTP.

mod bans;
mod counters;
mod limits;
pub(crate) mod lookup;
mod overrides;
mod plan;
mod resolve;
mod rule;
mod select;
mod take;
#[cfg(feature = "lookup")]
mod tier;
#[cfg(not(feature = "lookup"))]
mod untiered;
mod warned;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep};

pub use self::counters::Counters;
pub(crate) use self::counters::has_units;
pub(crate) use self::limits::{InForce, Limits};
pub use self::overrides::{Effect, Override, Overrides};
pub(crate) use self::plan::{CheckDraft, PendingCheck, Places, Plan};
use self::resolve::{ByOverrides, counter, looks, plan_for};
pub use self::rule::Rule;
pub(crate) use self::rule::{RuleKeys, Share};
pub use self::take::Permit;
#[cfg(feature = "lookup")]
pub use self::tier::{TierLookup, UnknownTier};
#[cfg(not(feature = "lookup"))]
pub(crate) use self::untiered::NoTierLookup as TierLookup;
pub(crate) use self::warned::is_first;
use crate::core::error::{Kind, built};
use crate::core::{Decision, Error, Key, PolicyName, random};
use crate::store::{Ask, BreakerState, Change, FailureRules, FailureStore, OnFailure, SlotGuard, Store, StoreDecision};
use crate::telemetry::log_bans;

/// Resolution of tokio's timers: no wait and no timeout is shorter.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

const FIRST_PAUSE: Duration = Duration::from_millis(25);

type DecidingStore = Arc<FailureStore>;

/// Limits any key by rules, for work other than HTTP requests.
///
/// All rules are decided as one over the same key: if one of them denies, nothing is taken from any. Clones share
/// rules, counters and circuit breaker. [`LiveLayer::limiter`](crate::LiveLayer::limiter) returns a limiter that shares
/// the rules and counters of a layer.
///
/// With a store that waits for a server, a limiter needs a tokio runtime with timers.
/// [`until_ready`](Self::until_ready) needs one with any store.
///
/// # Two keys
///
/// To limit by two keys, such as one for all jobs and one for each tenant, use two limiters on one store. They decide
/// one after the other, so call the limiter that denies more often first, and [`refund`](Self::refund) its units if the
/// second denies. [Slots](crate::Quota::concurrency) need no refund: dropping their guard releases them, so take them
/// first.
///
/// # Operators
///
/// A tool in another process sees and changes the counters of a service if it has the same rules as the service:
///
/// - The store has the same prefix, and the rule has the same name, algorithm and window: [`Policy::rule`] returns the
///   rule of a policy. The numbers of a [ban](Rule::ban) may differ.
/// - The key is the same: [`Policy::key_of`] makes it. Without the policy,
///   [`key::header("x-user")`](crate::key::header) extracts `Key::hashed("header x-user", "ada")`, and with `plain()`
///   it is `Key::new("header x-user", "ada")`.
/// - With [`on_failure(OnFailure::Deny)`](Self::on_failure), a failure of the store is an error. By default the tool's
///   own fallback decides, and nothing has been taken from this fallback yet.
///
/// A mistake in the first two points is not an error. It selects another counter, which has all units left.
///
/// [`peek`](Self::peek) shows the remaining units and whether a key is banned. [`reset`](Self::reset) resets its
/// counters. [`lift_ban`](Self::lift_ban) ends a ban. The units are still taken after that, so reset them, too. Other
/// processes may deny the key for up to 1 s more, from their [deny cache](crate::store::DenyCache). Nothing lists the
/// keys that are limited or banned.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Ban, Limiter, MemoryStore, OnFailure, Policy, Quota, key};
///
/// const HOUR: Duration = Duration::from_secs(3_600);
/// fn login() -> Policy {
///     let ban = Ban::new(2, HOUR, 24 * HOUR).of_verified_keys();
///     Policy::new("login", Quota::per_hour(1)).key(key::header("x-user")).ban(ban)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// # let store = MemoryStore::new();
/// # let service = Limiter::new(store.clone(), [login().rule().clone()]);
/// # for _ in 0..3 {
/// #     service.check(&login().key_of("ada")?).await?;
/// # }
/// // `store` is a `RedisStore` with the prefix of the service.
/// let tool = Limiter::new(store.clone(), [login().rule().clone()]).on_failure(OnFailure::Deny);
/// let ada = login().key_of("ada")?;
/// # assert_eq!(ada, tollgate::Key::hashed("header x-user", "ada"));
/// # let plain = Policy::new("login", Quota::per_hour(1)).key(key::header("x-user").plain());
/// # assert_eq!(plain.key_of("ada")?, tollgate::Key::new("header x-user", "ada"));
/// # let rule = || tollgate::Rule::new("login", Quota::per_hour(1));
/// # let other_ban = Limiter::new(store.clone(), [rule().ban(Ban::new(9, 2 * HOUR, HOUR))]);
/// # assert!(other_ban.peek(&ada).await?.is_banned());
/// # let without = Limiter::new(store.clone(), [rule()]);
/// # assert!(!without.peek(&ada).await?.is_banned());
/// # assert!(without.lift_ban(&ada).await.is_err());
/// assert!(tool.peek(&ada).await?.is_banned());
/// assert_eq!(tool.lift_ban(&ada).await?, 1);
/// assert_eq!(tool.reset(&ada).await?, 1);
/// assert_eq!(tool.reset(&ada).await?, 0, "it has taken nothing");
/// # assert!(service.check(&ada).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// [`Policy::rule`]: crate::Policy::rule
/// [`Policy::key_of`]: crate::Policy::key_of
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(2))]);
/// let ada = Key::new("user", "ada");
/// assert!(limiter.check(&ada).await?.is_allowed());
/// assert!(limiter.check(&ada).await?.is_allowed());
/// assert!(!limiter.check(&ada).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// At most 2 jobs of a tenant at once, and 20 a second of all:
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let store = MemoryStore::new();
/// let of_tenant = Limiter::new(store.clone(), [Rule::new("tenant", Quota::concurrency(2))]);
/// let of_all = Limiter::new(store, [Rule::new("jobs", Quota::per_second(20))]);
///
/// let (acme, all) = (Key::new("tenant", "acme"), Key::new("job", "all"));
/// let (decision, slots) = of_tenant.acquire(&acme).await?;
/// if decision.is_allowed() && of_all.check(&all).await?.is_allowed() {
///     // Run the job.
/// }
/// // If `of_all` denied, this takes back what `of_tenant` allowed.
/// drop(slots);
/// # assert_eq!(of_tenant.peek(&acme).await?.outcomes()[0].remaining(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Limiter {
    in_force: Arc<dyn InForce>,
    /// Names of the rules in use, if some were chosen.
    only: Option<Arc<[PolicyName]>>,
}

impl Limiter {
    /// Creates a limiter that decides by `rules`, with its counters in `store`.
    ///
    /// # Panics
    ///
    /// If two rules have the same name, because they would share their counters, or one has a [cost](Rule::cost) above
    /// what its quota ever holds. If the store does not [support](Store::capabilities) the rules. Most stores support
    /// all.
    #[track_caller]
    pub fn new(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Self {
        built(Self::try_new(store, rules))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If two rules have the same name, one has a [cost](Rule::cost) above what its quota ever holds, or the store does
    /// not [support](Store::capabilities) them. The message says what to change.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Quota, Rule};
    ///
    /// let rule = Rule::try_new("mail", Quota::try_per_hour(100)?)?;
    /// let limiter = Limiter::try_new(MemoryStore::new(), [rule])?;
    /// # let _ = limiter;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn try_new(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Result<Self, Error> {
        let (mut limits, rules) = (Limits::new(Arc::new(store)), Vec::from_iter(rules));
        limits.supports(rules.iter())?;
        Limits::check_costs(&rules)?;
        limits.set_rules(rules);
        Ok(Self::from_limits(limits))
    }

    pub(crate) fn shared(in_force: Arc<dyn InForce>) -> Self {
        Self { in_force, only: None }
    }

    /// Returns the overrides in force, which an operator sets at run time. A layer and its limiters share them.
    pub fn overrides(&self) -> Overrides {
        Overrides::new(Arc::clone(&self.in_force))
    }

    fn from_limits(limits: Limits) -> Self {
        Self::shared(Arc::new_cyclic(|source| {
            let mut limits = limits;
            limits.set_source(Weak::<ArcSwap<Limits>>::clone(source));
            ArcSwap::from_pointee(limits)
        }))
    }

    /// Takes the cost of every rule if all of them allow it, and nothing otherwise.
    ///
    /// Slots of a [concurrency](crate::Quota::concurrency) are released before this returns, so they limit nothing:
    /// hold them by [`acquire`](Self::acquire) or [`until_ready`](Self::until_ready).
    ///
    /// Work that a queueing leaky bucket allows has to wait for [`Decision::delay`] before it begins.
    ///
    /// The limiter of a [layer](crate::LiveLayer::limiter) uses the policies whose keys are of the same kind, and
    /// that apply to all requests. [`only`](Self::only) names others.
    ///
    /// # Errors
    ///
    /// If no policy is for the key: the message lists the kinds that exist. If the store fails,
    /// [`OnFailure::Deny`](crate::OnFailure::Deny) is set and a rule is enforced. Otherwise a failed store is not an
    /// error, and [`Decision::source`] says what decided instead.
    ///
    /// # Cancellation
    ///
    /// The future can be dropped at any point. If the store still allows the check, its units stay taken.
    pub async fn check(&self, key: &Key) -> Result<Decision, Error> {
        self.decide(key, None).await
    }

    /// Takes `units` from every rule, instead of the cost of the rule.
    ///
    /// 0 takes nothing and is always allowed, unless the key is [banned](crate::Ban). Slots are released before this
    /// returns, as by [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check).
    ///
    /// # Cancellation
    ///
    /// See [`check`](Self::check).
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
    /// assert!(limiter.check_n(&ada, 900).await?.is_allowed());
    /// assert!(!limiter.check_n(&ada, 900).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_n(&self, key: &Key, units: u64) -> Result<Decision, Error> {
        self.decide(key, Some(units)).await
    }

    /// Waits until the limits allow, for up to `timeout`.
    ///
    /// Returns the same as [`acquire`](Self::acquire): the decision, which is never a denial, and a guard of the slots,
    /// empty without a [concurrency](crate::Quota::concurrency).
    ///
    /// After a denial it sleeps for [`retry_after`](Decision::retry_after) plus up to a tenth of that, so that many
    /// tasks do not wake at once, and checks again. If the wait would end after the timeout, or no wait can help, it
    /// returns the error at once. If the wait is a [guess](Decision::retry_is_guess), as for slots, it checks again
    /// after 25 ms. Each further pause is twice as long, up to that wait. The last check is at the timeout.
    ///
    /// The timeout does not bound the last check, which may take its own [timeout](Self::timeout). It also does not
    /// bound the [delay](Decision::delay) of a queueing leaky bucket, because an allowed check sleeps for this delay as
    /// well. Tasks do not wait in order: `BackPressureLayer` of the crate `tollgate-shed` queues them.
    ///
    /// # Errors
    ///
    /// If the limits still deny at the end of the timeout, the error [is a denial](Error::is_denied) and has the last
    /// [decision](Error::decision). All other errors are the same as for [`check`](Self::check), because this method
    /// does not wait for a store that fails.
    ///
    /// # Cancellation
    ///
    /// See [`acquire`](Self::acquire). Denials take nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_second(100).burst(1))]);
    /// let ada = Key::new("user", "ada");
    /// for _ in 0..3 {
    ///     let (_decision, _slots) = limiter.until_ready(&ada, Duration::from_secs(5)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn until_ready(&self, key: &Key, timeout: Duration) -> Result<(Decision, SlotGuard), Error> {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let (decision, slots) = self.acquire(key).await?;
            if decision.is_allowed() {
                if !decision.delay().is_zero() {
                    sleep(decision.delay()).await;
                }
                return Ok((decision, slots));
            }
            let left = timeout.saturating_sub(start.elapsed());
            let mut wait = decision.retry_after();
            if decision.retry_is_guess() && !left.is_zero() {
                // Checks more often, because a slot may become free at any time, even just before the timeout.
                wait = wait.map(|wait| wait.min(pause).min(left));
                pause = pause.saturating_mul(2);
            }
            // Timers count milliseconds, and a shorter wait, or none, would make this a busy loop.
            let wait = wait.map(|wait| wait.max(TIMER_RESOLUTION));
            let Some(wait) = wait.filter(|wait| *wait <= left) else {
                let message = format!("the limits deny for longer than the timeout of {timeout:?}");
                return Err(Error::new(Kind::Denied, message).with_detail(decision));
            };
            sleep((wait + jitter(wait)).min(left)).await;
        }
    }

    /// Returns the remaining units of a key in every rule, without taking anything.
    ///
    /// A key that was never used has all units left. A key of another kind, window or store prefix also has all units
    /// left, because it has another counter.
    ///
    /// The decision allows unless the key is [banned](crate::Ban). [`Outcome::remaining`](crate::Outcome::remaining) is
    /// 0 where the next unit would be denied. While the store is unavailable, [`OnFailure`](crate::OnFailure) decides
    /// what this returns: the local fallback's counters, or a full quota with `Allow`. With `Deny` it is an error.
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(100))]);
    /// let ada = Key::new("user", "ada");
    /// limiter.check_n(&ada, 30).await?;
    /// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 70);
    ///
    /// assert_eq!(limiter.reset(&ada).await?, 1, "there was one counter");
    /// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 100);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peek(&self, key: &Key) -> Result<Decision, Error> {
        let limits = &*self.in_force.now();
        let looks = looks(limits, &self.places(limits, key)?, key, ByOverrides::Yes).await?;
        let looked = limits.store.decide(&looks, Ask::default()).wait().await?;
        Ok(looked.decision)
    }

    /// Resets the counters of a key, of every rule, and returns how many counters there were.
    ///
    /// 0 means that the key has taken nothing, or that it is not the key of the service: see
    /// [operators](Self#operators). A ban stays: see [`lift_ban`](Self::lift_ban). Slots in use are forgotten, so for a
    /// time more slots may be in use than the limit.
    ///
    /// It calls the store whether or not the circuit breaker is open, and leaves the local fallback's counters
    /// unchanged. The timeout is the store's own [timeout](crate::store::Capabilities::timeout), if it has one.
    ///
    /// Another process, or another store of this process, may have cached a denial, which it keeps for up to 1 s by
    /// default.
    ///
    /// The rules are reset one after the other. If they look tiers up, the counter of the key's present tier is reset.
    ///
    /// # Errors
    ///
    /// If no rule is for the key: see [`check`](Self::check). If the store, or the lookup of the tier, fails for one of
    /// the rules. The rules before that one are reset.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the rules before the current one are reset, and the current one may be.
    pub async fn reset(&self, key: &Key) -> Result<usize, Error> {
        self.adjust(key, Change::Reset).await
    }

    /// Refunds a key up to `units` of every rule, and never more than the key has taken.
    ///
    /// Returns how many rules refunded units. It calls the store in the same way as [`reset`](Self::reset).
    ///
    /// Checks through the same store see the refund once this returns. Another process, or another store of this
    /// process, may have cached a denial, which it keeps for up to the cap of its
    /// [`DenyCache`](crate::store::DenyCache), 1 s by default.
    ///
    /// # Errors
    ///
    /// If no rule is for the key: see [`check`](Self::check). If the store, or the lookup of the tier, fails for one of
    /// the rules. The rules before that one are refunded.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the rules before the current one are refunded, and the current one may be.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(1))]);
    /// let ada = Key::new("user", "ada");
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// assert!(!limiter.check(&ada).await?.is_allowed());
    ///
    /// assert_eq!(limiter.refund(&ada, 1).await?, 1, "of one rule");
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refund(&self, key: &Key, units: u64) -> Result<usize, Error> {
        self.adjust(key, Change::Refund(units)).await
    }

    async fn adjust(&self, key: &Key, change: Change) -> Result<usize, Error> {
        let limits = &*self.in_force.now();
        let mut changed = 0;
        for place in self.places(limits, key)? {
            let counter = counter(limits, place, key).await?;
            changed += usize::from(limits.store.adjust(&counter, change).wait().await?.units > 0);
        }
        Ok(changed)
    }

    async fn decide(&self, key: &Key, units: Option<u64>) -> Result<Decision, Error> {
        let (decision, slots) = self.decide_holding(key, units).await?;
        if !slots.is_empty() {
            self.in_force.now().warned.slots();
        }
        Ok(decision)
    }

    async fn decide_holding(&self, key: &Key, units: Option<u64>) -> Result<(Decision, SlotGuard), Error> {
        let (store, StoreDecision { decision, receipt }) = self.decide_owing(key, units).await?;
        let slots = SlotGuard::new(store.hold(&receipt));
        Ok((decision, slots))
    }

    async fn decide_owing(&self, key: &Key, units: Option<u64>) -> Result<(DecidingStore, StoreDecision), Error> {
        let limits = &*self.in_force.now();
        if limits.rules.is_empty() {
            limits.warned.no_rules();
        }
        let plan = plan_for(limits, &self.places(limits, key)?, key, units, ByOverrides::Yes)?;
        let (_, timer, decided) = limits.decide(plan).await?;
        let decision = decided.as_ref().map(|decided| &decided.decision);
        limits.telemetry.decided(timer, decision);
        log_bans(decision);
        Ok((Arc::clone(&limits.store), decided?))
    }
}

fn jitter(wait: Duration) -> Duration {
    let most = u64::try_from(wait.as_nanos() / 10).unwrap_or(u64::MAX);
    Duration::from_nanos(random::up_to(most))
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &self.in_force.now().rules).finish_non_exhaustive()
    }
}

impl Limiter {
    /// Sets what happens to checks that the store could not decide. The default is a local fallback.
    ///
    /// The limiter of a [layer](crate::LiveLayer::limiter) has the settings of the layer. This method, and the other
    /// methods that set what happens on failure, detach it: from then on it has its own circuit breaker, and keeps the
    /// rules that the layer has at this moment, even if the layer replaces them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, OnFailure, Quota, Rule};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(100))])
    ///     .on_failure(OnFailure::Allow)
    ///     .allow_for(Duration::from_secs(10))
    ///     .instances(NonZeroU32::new(4).ok_or("at least one")?)
    ///     .timeout(Duration::from_millis(50));
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change_failure(|rules| rules.on_failure = rule)
    }

    /// Sets for how long [`OnFailure::Allow`] allows everything in one outage, 60 s by default.
    ///
    /// After that the local fallback decides.
    ///
    /// See [`RateLimitLayer::allow_for`](crate::RateLimitLayer::allow_for).
    pub fn allow_for(self, time: Duration) -> Self {
        self.change_failure(|rules| rules.allow_for = time)
    }

    /// Sets how many processes share the limits, 1 by default.
    ///
    /// The fallback of each process allows its share of every limit, rounded up.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change_failure(|rules| rules.instances = instances)
    }

    /// Sets the timeout of one decision. Less than 1 ms becomes 1 ms.
    ///
    /// The default is the [timeout of the store](crate::store::Capabilities::timeout), or 100 ms if it has none.
    /// Lookups of tiers run before the decision, with their own [timeout](crate::policy::TierLookup::timeout).
    ///
    /// The store keeps to its own timeout if that is shorter: see
    /// [`RateLimitLayer::timeout`](crate::RateLimitLayer::timeout).
    pub fn timeout(self, budget: Duration) -> Self {
        self.change_failure(|rules| rules.budget = Some(budget.max(TIMER_RESOLUTION)))
    }

    /// Returns the state of the circuit breaker in front of the store: see [`OnFailure`].
    pub fn breaker_state(&self) -> BreakerState {
        self.in_force.now().store.breaker_state()
    }

    fn change_failure(self, change: impl FnOnce(&mut FailureRules)) -> Self {
        let mut limits = Limits::clone(&self.in_force.now());
        limits.change_failure(change);
        Self { only: self.only, ..Self::from_limits(limits) }
    }
}
