//! Limits without HTTP: jobs, messages, streams.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep};

use crate::core::error::Kind;
use crate::http::admission::ask::Ask;
use crate::http::admission::waiting::{Stage, Waiting};
use crate::http::admission::{Asked, Verdict};
use crate::http::gate::{Gate, SharedGate};
use crate::http::policy::Tiers;
use crate::metrics::Timer;
use crate::store::{Answer, Change, Deadline, Decided};
use crate::{Decision, Error, Key, Policy, RawValues, Status, Store};

const GRAIN: Duration = Duration::from_millis(1);

/// Policies over any key, asked from code.
///
/// All policies are decided as one, over the same key. What a policy says of requests has no meaning
/// here: its key, where it applies, lists, `cost_by` and `tier`. Its quota, cost, `tier_lookup`,
/// shadow mode and name do.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Policy::new("mail", Quota::per_hour(2))]);
/// let ada = Key::new("user", "ada");
/// assert!(limiter.check(&ada).await?.is_allowed());
/// assert!(limiter.check(&ada).await?.is_allowed());
/// assert!(!limiter.check(&ada).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    gate: SharedGate,
}

impl Limiter {
    /// A limiter with policies of its own.
    ///
    /// # Panics
    ///
    /// If the store does not [support](Store::supports) them; most support all.
    pub fn new(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Self {
        Self::try_new(store, policies).expect("the store supports the policies")
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If the store does not [support](Store::supports) the policies: the message says which.
    pub fn try_new(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let (mut gate, policies) = (Gate::new(Arc::new(store)), policies.into_iter().collect::<Vec<_>>());
        gate.supports(&policies)?;
        gate.set_policies(policies);
        Ok(Self::shared(Arc::new(ArcSwap::from_pointee(gate))))
    }

    pub(crate) fn shared(gate: SharedGate) -> Self {
        Self { gate }
    }

    /// Takes each policy's cost if all of it fits.
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

    /// As [`check`](Self::check), taking this many units from every policy; 0 only looks.
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    pub async fn check_n(&self, key: &Key, units: u64) -> Result<Decision, Error> {
        self.decide(key, Some(units)).await
    }

    /// Waits until it is admitted, but not longer than `patience`: returns the last refusal if that
    /// cannot be.
    ///
    /// It waits as long as it is told and up to a tenth of that more, so that many who wait do not
    /// ask all at once, and asks again. A delay in a queueing leaky bucket is waited too.
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    ///
    /// # Cancellation
    ///
    /// Nothing is taken before it is admitted.
    pub async fn until_ready(&self, key: &Key, patience: Duration) -> Result<Decision, Error> {
        let start = Instant::now();
        loop {
            let decision = self.check(key).await?;
            if decision.is_allowed() {
                sleep(decision.delay()).await;
                return Ok(decision);
            }
            // Timers count milliseconds: a store that tells a shorter wait, or none, is not asked in a busy loop.
            let Some(wait) = decision.retry_after().map(|wait| wait.max(GRAIN)) else { return Ok(decision) };
            let left = patience.saturating_sub(start.elapsed());
            if wait > left {
                return Ok(decision);
            }
            sleep((wait + jitter(wait)).min(left)).await;
        }
    }

    /// Tells what a key has left, without taking anything.
    ///
    /// # Errors
    ///
    /// If the store could not say.
    pub async fn status(&self, key: &Key) -> Result<Status, Error> {
        let gate = self.gate.load_full();
        let (looks, deadline) = looks(&gate, key).await?;
        let Decided { decision, receipt } = gate.store.decide(&looks.checks, deadline).wait().await?;
        gate.store.settle(receipt, &[]);
        Ok(Status::of(&gate, &decision))
    }

    /// Forgets what a key has taken from every policy.
    ///
    /// # Errors
    ///
    /// If the store could not do it for one of the policies; others may be done.
    pub async fn reset(&self, key: &Key) -> Result<(), Error> {
        let gate = self.gate.load_full();
        for check in looks(&gate, key).await?.0.checks {
            gate.store.reset(&check.counter).wait().await?;
        }
        Ok(())
    }

    /// Gives a key back up to this many units of every policy, never more than it has taken.
    ///
    /// # Errors
    ///
    /// If the store could not do it for one of the policies; others may be done.
    pub async fn refund(&self, key: &Key, units: u64) -> Result<(), Error> {
        let gate = self.gate.load_full();
        for check in looks(&gate, key).await?.0.checks {
            gate.store.adjust(&check.counter, Change::Refund(units)).wait().await?;
        }
        Ok(())
    }

    async fn decide(&self, key: &Key, units: Option<u64>) -> Result<Decision, Error> {
        let gate = self.gate.load_full();
        let asked = asked(&gate, key, units);
        let (_, timer, decided) = if asked.waiting.is_empty() {
            let timer = Timer::start();
            (asked.policies, timer, gate.store.decide(&asked.checks, Deadline::none()).wait().await)
        } else {
            gate.decide_later(asked).await.map_err(no_verdict)?
        };
        gate.decisions.decided(timer, &decided, gate.policies.iter().map(Policy::refusals));
        let Decided { decision, receipt } = decided?;
        gate.store.settle(receipt, &[]);
        Ok(decision)
    }
}

/// What each policy asks about a key.
fn asked(gate: &Gate, key: &Key, units: Option<u64>) -> Asked {
    let mut asked = Asked::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        let cost = units.unwrap_or_else(|| policy.options().cost.fixed());
        let ask = Ask::new(place, cost, *policy.quota());
        let tier = match &policy.options().tiers {
            Some(Tiers::Lookup(lookup)) => lookup.find(key, RawValues::default),
            _ => Answer::Ready(None),
        };
        match tier {
            Answer::Ready(tier) => {
                asked.policies.push(place);
                asked.checks.push(ask.with_tier(tier).check(policy, key.clone()));
            }
            Answer::Pending(finding) => asked.waiting.push(Waiting::new(ask, Stage::Tier(key.clone(), finding))),
        }
    }
    asked
}

/// The checks of a look at a key, and by when it is to be made.
async fn looks(gate: &Gate, key: &Key) -> Result<(Asked, Deadline), Error> {
    let mut asked = asked(gate, key, Some(0));
    let deadline = if asked.waiting.is_empty() { Deadline::none() } else { gate.deadline() };
    gate.find_out(&mut asked, deadline).await.map_err(no_verdict)?;
    Ok((asked, deadline))
}

/// Only keys that are looked up turn requests away.
fn no_verdict(verdict: Verdict) -> Error {
    match verdict {
        Verdict::Failed(error) => error,
        _ => Error::new(Kind::Store, "a policy refused a key that was given"),
    }
}

fn jitter(wait: Duration) -> Duration {
    wait.mul_f64(fastrand::f64() / 10.0)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("policies", &self.gate.load().policies).finish_non_exhaustive()
    }
}
