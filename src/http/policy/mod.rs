//! A policy: a rule, and what it says of requests over HTTP.

mod access;
mod address;
mod build;
mod count;
mod options;
mod scope;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

pub use self::access::AccessList;
pub(crate) use self::access::advice;
pub use self::count::Count;
pub(crate) use self::options::Options;
#[cfg(all(feature = "axum", feature = "config"))]
pub(crate) use self::scope::check_route;
pub(crate) use self::scope::{Predicate, Terms};
use crate::core::Mode;
use crate::http::key::{self, KeyExtractor, ListEntry, MissingKey};
use crate::limiter::Rule;
use crate::{Error, Quota};

/// A named limit: how much, counted by whom.
///
/// # Examples
///
/// Five failed logins a quarter of an hour for each account, whoever tries; the handler's 401 makes
/// the difference:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Count, Policy, Quota, key};
///
/// let policy = Policy::new("login", Quota::fixed_window(5, Duration::from_secs(900)))
///     .key(key::header("x-account"))
///     .methods([http::Method::POST])
///     .count(Count::failures());
/// assert_eq!(policy.name(), "login");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Policy {
    rule: Rule,
    key: Arc<dyn KeyExtractor>,
    options: Options,
}

impl Policy {
    /// A policy that counts all requests together, until it is given a [`key`](Self::key).
    ///
    /// # Panics
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn new(name: &str, quota: Quota) -> Self {
        Rule::new(name, quota).into()
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn try_new(name: &str, quota: Quota) -> Result<Self, Error> {
        Rule::try_new(name, quota).map(Self::from)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.rule.name()
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        self.rule.quota()
    }

    /// The policy without what it says of requests, for a [`Limiter`](crate::Limiter).
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn extractor(&self) -> &dyn KeyExtractor {
        &*self.key
    }

    pub(crate) fn rule_for_missing_key(&self) -> MissingKey {
        self.options.missing_key.unwrap_or_else(|| self.key.missing_key())
    }

    /// Whether keys of some values are refused.
    pub(crate) fn denies_values(&self) -> bool {
        self.options.deny.as_ref().is_some_and(|list| list.has_values())
    }

    /// Whether it may refuse a request of these terms for its key, or for having none.
    pub(crate) fn refuses_by_key(&self, terms: Terms) -> bool {
        self.denies_values() || (terms.keyed && self.rule_for_missing_key() == MissingKey::Deny)
    }

    /// Refuses routes and lists that can match nothing, where clients without another address have that
    /// of `client`.
    pub(crate) fn check_matches(&self, client: &dyn KeyExtractor) -> Result<(), Error> {
        self.options.scope.check_routes().map_err(|error| {
            let text = format!("policy {:?}: {error}", self.name());
            Error::invalid(text)
        })?;
        self.check_lists(client)
    }

    fn check_lists(&self, client: &dyn KeyExtractor) -> Result<(), Error> {
        let can_match = |entry: ListEntry<'_>| self.key.can_match(entry) || is_address_of(client, entry);
        for (what, list) in [("allow", &self.options.allow), ("deny", &self.options.deny)] {
            let Some((place, is_address)) = list.as_ref().and_then(|list| list.idle(can_match)) else { continue };
            return Err(Error::invalid(format!(
                "entry {place} of the {what} list of policy {:?} can never match: {}",
                self.name(),
                advice(is_address)
            )));
        }
        Ok(())
    }

    /// What a request takes before it is served.
    pub(crate) fn cost_of(&self, parts: &Parts) -> u64 {
        self.options.cost_by.as_ref().map_or(self.rule.units(), |cost| cost(parts))
    }

    /// The quota of a request, where no look-up finds another.
    pub(crate) fn quota_of(&self, parts: &Parts) -> Quota {
        self.options.tier.as_ref().and_then(|tier| tier(parts)).unwrap_or(*self.quota())
    }

    /// Whether a request may use what is reserved.
    pub(crate) fn is_critical(&self, parts: &Parts) -> bool {
        self.options.critical.as_ref().is_none_or(|is_critical| is_critical(parts))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether clients are told of this policy.
    pub(crate) fn is_shown(&self) -> bool {
        self.options.advertised && self.rule.mode() == Mode::Enforce
    }

    /// Whether what it tells a client is by what the connection or the server says of that client.
    pub(crate) fn is_proven(&self) -> bool {
        self.key.is_proven() && self.options.tier.is_none()
    }
}

/// A policy that counts all requests together by a rule, until it is given a [`key`](Policy::key).
impl From<Rule> for Policy {
    fn from(rule: Rule) -> Self {
        Self { rule, key: Arc::new(key::global()), options: Options::default() }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("name", &self.name()).field("quota", self.quota()).finish_non_exhaustive()
    }
}

fn is_address_of(client: &dyn KeyExtractor, entry: ListEntry<'_>) -> bool {
    matches!(entry, ListEntry::Net(_)) && client.can_match(entry)
}
