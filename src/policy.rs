//! A named rule: a quota, a key, and their options.

use std::fmt;
use std::sync::Arc;

use crate::key::{self, KeyExtractor};
use crate::{Error, Quota};

const LONGEST_NAME: usize = 64;

/// A named limit: how much, counted by whom.
///
/// # Examples
///
/// ```
/// use tollgate::{key, Policy, Quota};
///
/// let policy = Policy::new("api", Quota::per_minute(100)).key(key::header("x-api-key"));
/// assert_eq!(policy.name(), "api");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Policy {
    name: Arc<str>,
    quota: Quota,
    key: Arc<dyn KeyExtractor>,
    missing_key: Option<MissingKey>,
    cost: u64,
    advertised: bool,
}

/// What happens to a request that has no key for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policy does not apply to it.
    Skip,
    /// It is refused.
    Deny,
    /// It is counted together with all others that have none.
    Share,
}

impl Policy {
    /// A policy that counts all requests together, until it is given a [`key`](Self::key).
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
        check_name(name)?;
        let key = Arc::new(key::global());
        Ok(Self { name: name.into(), quota, key, missing_key: None, cost: 1, advertised: true })
    }

    /// Sets who is counted.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        Self { key: Arc::new(key), ..self }
    }

    /// Sets what happens to requests without a key. By default IP keys share one counter, and
    /// policies with another key are skipped.
    pub fn missing_key(self, rule: MissingKey) -> Self {
        Self { missing_key: Some(rule), ..self }
    }

    /// Sets how many units a request takes, instead of 1.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Keeps this policy out of all headers and bodies.
    pub fn unadvertised(self) -> Self {
        Self { advertised: false, ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn extractor(&self) -> &dyn KeyExtractor {
        &*self.key
    }

    pub(crate) fn rule_for_missing_key(&self) -> MissingKey {
        self.missing_key.unwrap_or_else(|| self.key.missing_key())
    }

    pub(crate) fn units(&self) -> u64 {
        self.cost
    }

    pub(crate) fn is_advertised(&self) -> bool {
        self.advertised
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("name", &self.name).field("quota", &self.quota).finish_non_exhaustive()
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let letter_first = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if letter_first && plain && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let shown: String = name.chars().take(LONGEST_NAME).collect();
    Err(Error::invalid(format!(
        "policy name {shown:?} is not allowed: start with a letter, then up to 63 letters, digits, '.', '_' or '-'"
    )))
}
