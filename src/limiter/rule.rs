//! A named quota, and how it is counted: a policy without what it says of requests.

use std::fmt;

use super::reserve::Share;
use super::tier::TierLookup;
use crate::core::{Mode, Requirement, Settles};
use crate::metrics::Refusals;
use crate::{Error, PolicyName, Quota};

/// A named quota, and how it is counted, whoever the client is: what a [`Limiter`](crate::Limiter) decides by.
///
/// A [`Policy`](crate::Policy) is a rule and what it says of requests over HTTP. The name of a rule is that of a
/// policy: a rule and a policy of one name share their counters, where the store, the key, the algorithm and the
/// window are the same.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Quota, Rule};
///
/// // A message costs 1 unit, and nobody is refused yet: what would be is logged and counted.
/// let limiter = Limiter::new(MemoryStore::new(), [
///     Rule::new("mail", Quota::per_hour(100)),
///     Rule::new("mail-daily", Quota::per_hour(1_000)).shadow(),
/// ]);
/// # let _ = limiter;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    name: PolicyName,
    quota: Quota,
    cost: u64,
    mode: Mode,
    settles: Settles,
    reserve: Option<Share>,
    tiers: Option<TierLookup>,
    refusals: Refusals,
}

impl Rule {
    /// A rule by which each check takes 1 unit.
    ///
    /// # Panics
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn new(name: &str, quota: Quota) -> Self {
        Self::try_new(name, quota).expect("a policy's name is a letter, then up to 63 letters, digits, '.', '_' or '-'")
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn try_new(name: &str, quota: Quota) -> Result<Self, Error> {
        Ok(Self {
            name: name.try_into()?,
            quota,
            cost: 1,
            mode: Mode::Enforce,
            settles: Settles::AsTaken,
            reserve: None,
            tiers: None,
            refusals: Refusals::default(),
        })
    }

    /// Sets how many units a check takes, instead of 1. A cost of 0 only looks; one above the capacity can never
    /// be admitted.
    pub fn cost(self, units: u64) -> Self {
        Self { cost: units, ..self }
    }

    /// Decides, counts and logs, and never refuses: to try a rule on real traffic.
    pub fn shadow(self) -> Self {
        Self { mode: Mode::Shadow, ..self }
    }

    /// Looks the quota up by the key; the rule's own quota holds where the look-up finds none.
    ///
    /// A client whose limit or burst changes keeps the units used; a quota with another window or algorithm starts
    /// with fresh state.
    pub fn tier_lookup(self, lookup: TierLookup) -> Self {
        Self { tiers: Some(lookup), ..self }
    }

    /// The name.
    pub fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The quota, where no look-up finds another.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Without a look-up of quotas.
    pub(crate) fn without_tiers(self) -> Self {
        Self { tiers: None, ..self }
    }

    /// What was taken may be given back, by what becomes of the request.
    pub(crate) fn settled_by_outcome(self) -> Self {
        Self { settles: Settles::ByOutcome, ..self }
    }

    /// Keeps a share of the capacity from checks that are not critical.
    pub(crate) fn reserving(self, share: Share) -> Self {
        Self { reserve: Some(share), ..self }
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

    pub(crate) fn reserve(&self) -> Option<Share> {
        self.reserve
    }

    pub(crate) fn tiers(&self) -> Option<&TierLookup> {
        self.tiers.as_ref()
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What it requires of a store.
    pub(crate) fn requirement(&self) -> Requirement<'_> {
        let Self { settles, reserve, .. } = self;
        Requirement { settles: *settles, reserves: reserve.is_some(), ..Requirement::new(&self.name, &self.quota) }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("name", &self.name).field("quota", &self.quota).finish_non_exhaustive()
    }
}
