//! Overrides of limits by operators, at run time.
//!
//! A table is swapped as a whole, and a flag is set while it has entries, so a check without overrides costs one atomic
//! load. [`Limits::overridden`] applies the table to each check, also after a lookup, so that a store never sees it. The
//! denial needs no store: `FailureStore` decides it before one is called.

pub(super) mod table;

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

pub use self::table::{Effect, Override};
use self::table::{MAX_OVERRIDES, OverrideTable, switched};
use super::limits::{InForce, Limits};
use super::rule::Rule;
use crate::core::{Error, Key, Mode, Overridden, PolicyName};
use crate::store::Check;

/// Overrides in force in a layer or limiter, its clones, and the services made from it.
///
/// Returned by [`LiveLayer::overrides`](crate::LiveLayer::overrides) and
/// [`Limiter::overrides`](crate::Limiter::overrides). They hold in this process, also while the store is unavailable,
/// and outlive policies that are replaced. They show in [`explain`](crate::LiveLayer::explain), in
/// [`Outcome::is_overridden`](crate::Outcome::is_overridden), in headers, and in metrics.
#[derive(Clone)]
#[must_use]
pub struct Overrides {
    table: Arc<OverrideTable>,
    in_force: Arc<dyn InForce>,
}

impl Overrides {
    pub(crate) fn new(in_force: Arc<dyn InForce>) -> Self {
        Self { table: Arc::clone(&in_force.now().overrides), in_force }
    }

    /// Adds an override, in place of one of the same kind for the same policy and key.
    ///
    /// # Errors
    ///
    /// If no policy has its name, or makes such a key. If it switches a policy for one key only. If there are 10,000
    /// already.
    pub fn set(&self, one: Override) -> Result<(), Error> {
        self.check(&one)?;
        if !self.table.set(one) {
            return Err(Error::invalid(format!("there are {MAX_OVERRIDES} overrides already: remove some")));
        }
        Ok(())
    }

    /// Returns an error if [`set`](Self::set) would.
    ///
    /// # Errors
    ///
    /// See [`set`](Self::set).
    pub fn check(&self, one: &Override) -> Result<(), Error> {
        one.check()?;
        self.in_force.now().accepts(one.policy.as_ref(), one.key.as_ref())
    }

    /// Replaces all overrides. Those that [`set`](Self::set) would not accept are left out, and so are all beyond 10,000.
    pub fn replace(&self, all: impl IntoIterator<Item = Override>) {
        let all: Vec<Override> = all.into_iter().filter(|one| self.check(one).is_ok()).collect();
        self.table.replace(&all);
    }

    /// Removes the override of the same kind for the same policy and key. Returns `true` if there was one.
    pub fn remove(&self, one: &Override) -> bool {
        self.table.remove(one)
    }

    /// Returns the overrides that have not ended.
    #[must_use]
    pub fn list(&self) -> Vec<Override> {
        self.table.list()
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Limits {
    /// Returns the mode of a rule before a key is known, or `None` if it is switched off. A policy that is enforced for
    /// a share of its keys is in shadow mode until then.
    #[inline]
    pub(crate) fn mode(&self, rule: &Rule) -> Option<Mode> {
        if !self.overrides.is_used() {
            return Some(rule.mode());
        }
        let mode = self.overrides.find(rule.name(), None).mode;
        mode.map_or(Some(rule.mode()), |(_, effect, _)| switched(effect, rule.name(), None))
    }

    /// Applies overrides to a check: `None` if it is not made.
    #[inline]
    pub(crate) fn overridden(&self, check: Check) -> Option<Check> {
        if self.overrides.is_used() { self.apply(check) } else { Some(check) }
    }

    #[cold]
    fn apply(&self, mut check: Check) -> Option<Check> {
        let (policy, key) = (check.counter.policy().clone(), check.counter.key().clone());
        let found = self.overrides.find(&policy, Some(&key));
        let is_changed = found.quota.is_some() || found.mode.is_some();
        if let Some((_, effect, _)) = found.mode {
            check.mode = switched(effect, &policy, Some(&key))?;
        }
        if let Some((_, Effect::Scale(factor), _)) = found.quota {
            let quota = check.counter.quota().scaled(factor);
            check.counter = check.counter.with_quota(quota);
            // The floor is a share of the quota.
            let rule = self.rules.iter().find(|rule| *rule.name() == policy).filter(|_| check.floor > 0);
            if let Some(share) = rule.and_then(Rule::reserve) {
                check.floor = share.units(&quota);
            }
        }
        check.overridden = if is_changed { Overridden::Changed } else { Overridden::No };
        match found.access {
            Some((_, Effect::Exempt, _)) => return None,
            Some((_, Effect::Deny, until)) if !check.is_only_for_ban() => {
                check.mode = Mode::Enforce;
                check.overridden =
                    Overridden::Denied(until.map(|until| until.saturating_duration_since(Instant::now())));
            }
            _ => {}
        }
        Some(check)
    }

    /// Returns `true` if a key is exempt, so that nothing has to be looked up for it.
    #[inline]
    pub(crate) fn exempts(&self, rule: &Rule, key: &Key) -> bool {
        self.overrides.is_used()
            && matches!(self.overrides.find(rule.name(), Some(key)).access, Some((_, Effect::Exempt, _)))
    }

    /// Returns `true` if the rule denies some keys: then a request whose key is ambiguous may be of one of them.
    pub(crate) fn denies_a_key(&self, rule: &Rule) -> bool {
        self.overrides.is_used() && self.overrides.denies_a_key(rule.name())
    }

    /// Returns `true` if the rule is enforced for all keys, or for some.
    pub(crate) fn may_enforce(&self, rule: &Rule) -> bool {
        if !self.overrides.is_used() {
            return rule.mode() == Mode::Enforce;
        }
        match self.overrides.find(rule.name(), None).mode {
            Some((_, Effect::Enforce(share), _)) => share > 0.0,
            Some(_) => false,
            None => rule.mode() == Mode::Enforce,
        }
    }

    fn accepts(&self, policy: Option<&PolicyName>, key: Option<&Key>) -> Result<(), Error> {
        let named = |rule: &PolicyName| policy.is_none_or(|policy| policy == rule);
        let places = self.rules.iter().enumerate().filter(|(_, rule)| named(rule.name()));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        if let Some(policy) = policy.filter(|_| places.is_empty()) {
            let all: Vec<&str> = self.rules.iter().map(|rule| rule.name().as_str()).collect();
            return Err(Error::invalid(format!("no policy has the name {:?}; there are {all:?}", policy.as_str())));
        }
        let Some(key) = key else { return Ok(()) };
        let makes = |place: &usize| self.keys.get(*place).is_none_or(|keys| keys.may_make(key));
        if places.iter().any(makes) {
            return Ok(());
        }
        let each = places.iter().filter_map(|place| Some(self.keys.get(*place)?.describe(self.rules[*place].name())));
        Err(Error::invalid(format!(
            "no policy makes the key {key}, of kind {:?}: {}",
            key.kind(),
            each.collect::<Vec<_>>().join("; ")
        )))
    }
}
