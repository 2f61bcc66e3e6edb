use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use crate::core::{Error, Key, Mode, PolicyName};

/// The longest override: longer ones end then.
const MAX_TIME: Duration = Duration::from_secs(30 * 366 * 86_400);

/// Entries of one table: more are an error, so a mistaken tool cannot fill memory.
pub(super) const MAX_OVERRIDES: usize = 10_000;

/// A change to limits that an operator makes for a while: for one key, one policy, both, or everything.
///
/// The most specific override of each kind wins: for a key under a policy, for a key, for a policy, for all. There are
/// three kinds: [`exempt`](Self::exempt) and [`deny`](Self::deny); [`scale`](Self::scale); and those that switch
/// policies, [`off`](Self::off), [`shadow`](Self::shadow), [`enforce`](Self::enforce) and
/// [`enforce_share`](Self::enforce_share).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::overrides::Override;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let plan = Policy::new("plan", Quota::per_hour(1_000)).key(key::header("x-user").plain());
/// let ada = plan.key_of("ada")?;
/// let layer = RateLimitLayer::new(MemoryStore::new(), plan).live();
///
/// let hour = Duration::from_secs(3_600);
/// layer.overrides().set(Override::exempt(hour).key(ada))?;
/// layer.overrides().set(Override::scale(2.0, hour)?.policy("plan")?)?;
/// assert_eq!(layer.overrides().list().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Override {
    pub(super) policy: Option<PolicyName>,
    pub(super) key: Option<Key>,
    effect: Effect,
    until: Option<Instant>,
}

/// Effect of an [`Override`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// Requests are not counted.
    Exempt,
    /// Requests are denied, whatever their counters have left.
    Deny,
    /// Limit and burst are multiplied by this factor.
    Scale(f64),
    /// The policy does not apply.
    Off,
    /// The policy is in shadow mode.
    Shadow,
    /// The policy is enforced for this share of its keys, from 0 to 1, and in shadow mode for the others.
    Enforce(f64),
}

/// Effects of one kind replace one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Access,
    Quota,
    Mode,
}

impl Effect {
    fn kind(self) -> Kind {
        match self {
            Self::Exempt | Self::Deny => Kind::Access,
            Self::Scale(_) => Kind::Quota,
            Self::Off | Self::Shadow | Self::Enforce(_) => Kind::Mode,
        }
    }
}

impl Override {
    fn new(effect: Effect, time: Option<Duration>) -> Self {
        let until = time.map(|time| Instant::now() + time.min(MAX_TIME));
        Self { policy: None, key: None, effect, until }
    }

    /// Exempts requests from limits for `time`. They are not counted, and a ban does not hold for them.
    pub fn exempt(time: Duration) -> Self {
        Self::new(Effect::Exempt, Some(time))
    }

    /// Denies requests for `time`, with 429 and the rest of it as `Retry-After`. Nothing is taken.
    pub fn deny(time: Duration) -> Self {
        Self::new(Effect::Deny, Some(time))
    }

    /// Multiplies limit and burst by `factor` for `time`. The units used are kept.
    ///
    /// A scaled limit is at least 1, and at most what the algorithm keeps exactly.
    ///
    /// # Errors
    ///
    /// If `factor` is not above 0 and at most 1,000.
    pub fn scale(factor: f64, time: Duration) -> Result<Self, Error> {
        if !(factor > 0.0 && factor <= 1_000.0) {
            return Err(Error::invalid(format!("factor {factor} is not allowed: it must be above 0 and at most 1000")));
        }
        Ok(Self::new(Effect::Scale(factor), Some(time)))
    }

    /// Switches policies off, until it is [removed](super::Overrides::remove).
    pub fn off() -> Self {
        Self::new(Effect::Off, None)
    }

    /// Puts policies in [shadow mode](crate::Policy::shadow), until it is [removed](super::Overrides::remove).
    pub fn shadow() -> Self {
        Self::new(Effect::Shadow, None)
    }

    /// Enforces policies that are in shadow mode, until it is [removed](super::Overrides::remove).
    pub fn enforce() -> Self {
        Self::new(Effect::Enforce(1.0), None)
    }

    /// Enforces policies for a share of their keys, and puts them in shadow mode for the others.
    ///
    /// A hash of policy and key chooses: every process chooses alike, and a larger share has all keys of a smaller one.
    /// A client that chooses its own key can choose one that is not enforced.
    ///
    /// # Errors
    ///
    /// If `share` is not from 0 to 1.
    pub fn enforce_share(share: f64) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::invalid(format!("share {share} is not allowed: it must be from 0 to 1")));
        }
        Ok(Self::new(Effect::Enforce(share), None))
    }

    /// Restricts it to the policy of this name.
    ///
    /// # Errors
    ///
    /// If this is not a name.
    pub fn policy(self, name: &str) -> Result<Self, Error> {
        Ok(Self { policy: Some(name.parse()?), ..self })
    }

    /// Restricts it to a key. [`Policy::key_of`](crate::Policy::key_of) makes it from what the client sends.
    pub fn key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Ends it after `time`.
    pub fn ends_in(self, time: Duration) -> Self {
        Self { until: Some(Instant::now() + time.min(MAX_TIME)), ..self }
    }

    /// Returns the effect.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns the name of the policy, or `None` if it is for all.
    #[must_use]
    pub fn policy_name(&self) -> Option<&str> {
        self.policy.as_ref().map(PolicyName::as_str)
    }

    /// Returns the key, or `None` if it is for all.
    #[must_use]
    pub fn for_key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns the time until it ends, or `None` if it has no end.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    fn target(&self) -> (Kind, Option<&PolicyName>, Option<&Key>) {
        (self.effect.kind(), self.policy.as_ref(), self.key.as_ref())
    }

    /// How specific it is: a key counts more than a policy.
    fn rank(&self) -> u8 {
        2 * u8::from(self.key.is_some()) + u8::from(self.policy.is_some())
    }

    fn is_for(&self, policy: &PolicyName) -> bool {
        self.policy.as_ref().is_none_or(|name| name == policy)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.effect.kind() == Kind::Mode && self.key.is_some() {
            return Err(Error::invalid(
                "a policy cannot be switched for one key: exempt the key for a time, or deny it",
            ));
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(in crate::limiter) struct OverrideTable {
    /// `true` if the table has entries.
    is_used: AtomicBool,
    table: ArcSwap<Table>,
    /// Held by a change, so that the flag is of the last table.
    changing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    keys: HashMap<Key, Vec<Override>>,
    others: Vec<Override>,
    /// Policies that deny some keys, or `None` for all policies, and the end of the last of these denials.
    denying: HashMap<Option<PolicyName>, Option<Instant>>,
    /// The end of the last override, or `None` if one has no end.
    end: Option<Instant>,
}

impl Table {
    fn new(all: Vec<Override>) -> Self {
        let end = all.iter().map(|one| one.until).reduce(later).flatten();
        let mut table = Self { end, ..Self::default() };
        for one in all {
            let Some(key) = one.key.clone() else {
                table.others.push(one);
                continue;
            };
            if one.effect == Effect::Deny {
                let last = table.denying.entry(one.policy.clone()).or_insert(one.until);
                *last = later(*last, one.until);
            }
            table.keys.entry(key).or_default().push(one);
        }
        table
    }
}

/// `None` is no end.
fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    Some(one?.max(other?))
}

impl OverrideTable {
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Returns `false` if it is full.
    pub(super) fn set(&self, one: Override) -> bool {
        let mut is_set = false;
        self.change(|all| {
            all.retain(|other| one.target() != other.target());
            is_set = all.len() < MAX_OVERRIDES;
            all.extend(is_set.then_some(one));
        });
        is_set
    }

    pub(super) fn replace(&self, all: &[Override]) {
        let last: HashMap<_, &Override> = all.iter().take(MAX_OVERRIDES).map(|one| (one.target(), one)).collect();
        self.change(|all| *all = last.values().map(|one| (*one).clone()).collect());
    }

    pub(super) fn remove(&self, one: &Override) -> bool {
        let mut removed = false;
        self.change(|all| {
            let before = all.len();
            all.retain(|other| one.target() != other.target());
            removed = all.len() < before;
        });
        removed
    }

    pub(super) fn list(&self) -> Vec<Override> {
        let (table, now) = (self.table.load(), Instant::now());
        let all = table.others.iter().chain(table.keys.values().flatten());
        all.filter(|one| !one.is_over(now)).cloned().collect()
    }

    /// Also drops entries that have ended.
    fn change(&self, change: impl FnOnce(&mut Vec<Override>)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.list();
        change(&mut all);
        let is_used = !all.is_empty();
        self.table.store(Arc::new(Table::new(all)));
        self.is_used.store(is_used, Ordering::Release);
    }

    pub(super) fn denies_a_key(&self, policy: &PolicyName) -> bool {
        let (table, now) = (self.table.load(), Instant::now());
        let ends = [table.denying.get(&None), table.denying.get(&Some(policy.clone()))];
        ends.into_iter().flatten().any(|end| end.is_none_or(|end| now < end))
    }

    pub(super) fn find(&self, policy: &PolicyName, key: Option<&Key>) -> Found {
        let (table, now) = (self.table.load(), Instant::now());
        if table.end.is_some_and(|end| end <= now) {
            // The last one has ended: from now on a check costs one load again.
            self.change(|_| {});
            return Found::default();
        }
        let of_key = key.and_then(|key| table.keys.get(key)).into_iter().flatten();
        let mut found = Found::default();
        for one in table.others.iter().chain(of_key).filter(|one| one.is_for(policy) && !one.is_over(now)) {
            let slot = match one.effect.kind() {
                Kind::Access => &mut found.access,
                Kind::Quota => &mut found.quota,
                Kind::Mode => &mut found.mode,
            };
            if slot.as_ref().is_none_or(|other| other.0 <= one.rank()) {
                *slot = Some((one.rank(), one.effect, one.until));
            }
        }
        found
    }
}

/// How specific it is, the effect, and its end.
type Entry = Option<(u8, Effect, Option<Instant>)>;

#[derive(Default)]
pub(super) struct Found {
    pub(super) access: Entry,
    pub(super) quota: Entry,
    pub(super) mode: Entry,
}

/// Returns `None` if the policy is switched off. Without a key, a share of keys is not enforced.
pub(super) fn switched(effect: Effect, policy: &PolicyName, key: Option<&Key>) -> Option<Mode> {
    match effect {
        Effect::Off => None,
        Effect::Enforce(share) if key.map_or(share >= 1.0, |key| fraction(policy, key) < share) => Some(Mode::Enforce),
        _ => Some(Mode::Shadow),
    }
}

/// A number from 0 to below 1, which is the same in all processes and versions.
#[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn fraction(policy: &PolicyName, key: &Key) -> f64 {
    let mut hasher = SipHasher13::new();
    hasher.write(policy.as_str().as_bytes());
    hasher.write(&[0]);
    hasher.write(key.as_bytes());
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_table_whose_last_override_has_ended_is_not_looked_into_any_more() {
        let (table, policy) = (OverrideTable::default(), "plan".parse().expect("a name"));
        let second = Duration::from_secs(1);
        assert!(
            table.set(Override::exempt(second)) && table.set(Override::deny(2 * second).key(Key::new("user", "ada")))
        );
        tokio::time::advance(second).await;
        assert!(table.find(&policy, None).access.is_none() && table.is_used() && table.denies_a_key(&policy));
        tokio::time::advance(second).await;
        assert!(!table.denies_a_key(&policy) && table.is_used());
        assert!(table.find(&policy, None).access.is_none() && !table.is_used());
        assert!(table.set(Override::off()) && table.set(Override::exempt(second)));
        tokio::time::advance(2 * second).await;
        assert!(table.find(&policy, None).mode.is_some() && table.is_used(), "one has no end");
    }
}
