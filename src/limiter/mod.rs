//! Limits without HTTP: rules over any key, for jobs, messages and streams.
//!
//! A [`Rule`] is a named quota. The [`Limits`] are the rules in force, the store that decides by them and what is done
//! when it cannot; they are what a [`Limiter`] and a layer over HTTP share, and are replaced as a whole while they are
//! used. A [`Plan`] is what one decision checks, some of which may have to be looked up before.

mod limits;
mod peek;
mod plan;
mod reserve;
mod rule;
mod tier;

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

pub(crate) use self::limits::{InForce, Limits, Published};
pub(crate) use self::plan::{Draft, Finding, Found, Places, Plan};
pub(crate) use self::reserve::Share;
pub use self::rule::Rule;
pub use self::tier::TierLookup;
use crate::metrics::Timer;
use crate::store::{Answer, Change, Check, Deadline, Decided, FailureRules};
use crate::{BreakerState, Decision, Error, Key, OnFailure, Quota, RawValues, Store};

const GRAIN: Duration = Duration::from_millis(1);

/// Rules over any key, decided from code.
///
/// All rules are decided as one, over the same key: if one of them refuses, none is charged.
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
#[derive(Clone)]
#[must_use]
pub struct Limiter {
    in_force: Arc<dyn InForce>,
}

impl Limiter {
    /// A limiter with rules of its own.
    ///
    /// # Panics
    ///
    /// If the store does not [support](Store::supports) them; most support all.
    pub fn new(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::try_new(store, rules).expect("the store supports the rules")
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If the store does not [support](Store::supports) the rules: the message says which.
    pub fn try_new(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Result<Self, Error> {
        let mut limits = Limits::new(Arc::new(store));
        limits.set_rules(rules);
        limits.supports(limits.rules.iter())?;
        Ok(Self::of(limits))
    }

    /// The limits that are published to others as well.
    pub(crate) fn shared(in_force: Arc<dyn InForce>) -> Self {
        Self { in_force }
    }

    fn of(limits: Limits) -> Self {
        Self::shared(Arc::new(ArcSwap::from_pointee(limits)))
    }

    /// Sets what happens to checks that the store could not decide, instead of a local fallback.
    ///
    /// This and the other settings for failure make a limiter of its own, with a circuit breaker of its own: that of
    /// a [layer](crate::RateLimitLayer::limiter) has the layer's settings, and with another one it keeps the rules
    /// that the layer has at this moment.
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change_failure(|rules| rules.on_failure = rule)
    }

    /// Sets for how long [`OnFailure::Allow`] admits all in one outage, instead of 60 s: see
    /// [`RateLimitLayer::allow_for`](crate::RateLimitLayer::allow_for).
    pub fn allow_for(self, time: Duration) -> Self {
        self.change_failure(|rules| rules.allow_for = time)
    }

    /// Sets how many processes share the limits: each one's fallback admits that share.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change_failure(|rules| rules.instances = instances.get())
    }

    /// Sets how long one decision may take, whatever the store; 0 is taken as 1 ms. Without it, it is the
    /// [store's own budget](Store::budget): see [`RateLimitLayer::budget`](crate::RateLimitLayer::budget).
    pub fn budget(self, budget: Duration) -> Self {
        self.change_failure(|rules| rules.budget = Some(budget.max(GRAIN)))
    }

    /// Whether the store is called, or has failed so often that it is not: see [`OnFailure`].
    pub fn breaker_state(&self) -> BreakerState {
        self.in_force.now().limits().store.breaker_state()
    }

    fn change_failure(self, change: impl FnOnce(&mut FailureRules)) -> Self {
        let mut limits = self.in_force.now().limits().clone();
        limits.change_failure(change);
        Self::of(limits)
    }

    /// Takes each rule's cost if all of it fits.
    ///
    /// What is admitted by a queueing leaky bucket is to wait [`Decision::delay`].
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    ///
    /// # Cancellation
    ///
    /// Units of a decision that is not waited for stay taken.
    pub async fn check(&self, key: &Key) -> Result<Decision, Error> {
        self.decide(key, None).await
    }

    /// As [`check`](Self::check), taking this many units from every rule; 0 only looks.
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    pub async fn check_n(&self, key: &Key, units: u64) -> Result<Decision, Error> {
        self.decide(key, Some(units)).await
    }

    /// Waits until a check is admitted, but no longer than `timeout`: returns the last refusal if that cannot be.
    ///
    /// After a refusal it waits for its [`retry_after`](Decision::retry_after) and up to a tenth of that more, so that
    /// many who wait do not come back all at once, and checks again. The delay of a queueing leaky bucket is waited
    /// for as well.
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    ///
    /// # Cancellation
    ///
    /// Nothing is taken before it is admitted.
    pub async fn until_ready(&self, key: &Key, timeout: Duration) -> Result<Decision, Error> {
        let start = Instant::now();
        loop {
            let decision = self.check(key).await?;
            if decision.is_allowed() {
                sleep(decision.delay()).await;
                return Ok(decision);
            }
            // Timers count milliseconds: a shorter wait, or none, would make this a busy loop.
            let Some(wait) = decision.retry_after().map(|wait| wait.max(GRAIN)) else { return Ok(decision) };
            let left = timeout.saturating_sub(start.elapsed());
            if wait > left {
                return Ok(decision);
            }
            sleep((wait + jitter(wait)).min(left)).await;
        }
    }

    /// Looks at what a key has left of every rule, without taking anything.
    ///
    /// # Errors
    ///
    /// If the store could not say.
    pub async fn peek(&self, key: &Key) -> Result<Decision, Error> {
        let now = self.in_force.now();
        let limits = now.limits();
        let (looks, deadline) = looks(limits, key).await;
        let Decided { decision, receipt } = limits.store.decide(&looks, deadline).wait().await?;
        limits.store.settle(receipt, &[]);
        Ok(decision)
    }

    /// Forgets what a key has taken from every rule.
    ///
    /// # Errors
    ///
    /// If the store could not do it for one of the rules; others may be done.
    pub async fn reset(&self, key: &Key) -> Result<(), Error> {
        let now = self.in_force.now();
        let limits = now.limits();
        for check in looks(limits, key).await.0 {
            limits.store.reset(&check.counter).wait().await?;
        }
        Ok(())
    }

    /// Gives a key back up to this many units of every rule, never more than it has taken.
    ///
    /// # Errors
    ///
    /// If the store could not do it for one of the rules; others may be done.
    pub async fn refund(&self, key: &Key, units: u64) -> Result<(), Error> {
        let now = self.in_force.now();
        let limits = now.limits();
        for check in looks(limits, key).await.0 {
            limits.store.adjust(&check.counter, Change::Refund(units)).wait().await?;
        }
        Ok(())
    }

    async fn decide(&self, key: &Key, units: Option<u64>) -> Result<Decision, Error> {
        let now = self.in_force.now();
        let limits = now.limits();
        let plan = plan(limits, key, units);
        let (rules, timer, decided) = if plan.findings.is_empty() {
            let timer = Timer::start();
            (plan.rules, timer, limits.store.decide(&plan.checks, Deadline::none()).wait().await)
        } else {
            limits.decide_later(plan).await.unwrap_or_else(|refused| match refused {})
        };
        limits.decisions.decided(timer, &decided, rules.iter().map(|place| limits.rules[*place].refusals()));
        let Decided { decision, receipt } = decided?;
        limits.store.settle(receipt, &[]);
        Ok(decision)
    }
}

/// What each rule checks about a key.
fn plan<'a>(limits: &'a Limits, key: &Key, units: Option<u64>) -> Plan<Tier<'a>> {
    let mut plan = Plan::default();
    for (place, rule) in limits.rules.iter().enumerate() {
        let draft = Draft::new(place, units.unwrap_or(rule.units()), *rule.quota());
        let found = rule.tiers().map_or(Answer::Ready(None), |lookup| lookup.find(key, RawValues::default));
        match found {
            Answer::Ready(tier) => plan.add(place, draft.with_tier(tier).check(rule, key.clone())),
            Answer::Pending(pending) => plan.findings.push(Tier { draft, rule, key: key.clone(), pending }),
        }
    }
    plan
}

/// The looks at a key, and by when they are to be made.
async fn looks(limits: &Limits, key: &Key) -> (SmallVec<[Check; 2]>, Deadline) {
    let mut plan = plan(limits, key, Some(0));
    let deadline = if plan.findings.is_empty() { Deadline::none() } else { limits.deadline() };
    limits.find_out(&mut plan, deadline).await.unwrap_or_else(|refused| match refused {});
    (plan.checks, deadline)
}

/// A rule whose quota is looked up by a key: no look-up of one refuses anything.
struct Tier<'a> {
    draft: Draft,
    rule: &'a Rule,
    key: Key,
    pending: Pin<Box<dyn Future<Output = Option<Quota>> + Send>>,
}

impl Finding for Tier<'_> {
    type Refusal = Infallible;

    fn rule(&self) -> usize {
        self.draft.rule
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Found<Infallible>> {
        let found = self.pending.as_mut().poll(cx);
        found.map(|tier| Found::Check(self.draft.with_tier(tier).check(self.rule, self.key.clone())))
    }

    fn late(&self) -> Found<Infallible> {
        Found::Check(self.draft.check(self.rule, self.key.clone()))
    }
}

fn jitter(wait: Duration) -> Duration {
    wait.mul_f64(fastrand::f64() / 10.0)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &self.in_force.now().limits().rules).finish_non_exhaustive()
    }
}
