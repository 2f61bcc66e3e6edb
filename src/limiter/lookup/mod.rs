//! Lookups: keys and quotas that the application looks up asynchronously, by the key of a request.
//!
//! Any client can cause a lookup by making up a key, so lookups are bounded. There is one in flight for each key, and a
//! fixed number in all. Each lookup has a timeout. Results are cached, failures too.
//!
//! Callers handle missing results: [`admission`](crate::http) for keys, [`limiter`](crate::limiter) for quotas.

#[cfg(feature = "lookup")]
mod cache;

#[cfg(feature = "lookup")]
use std::fmt;

#[cfg(feature = "lookup")]
use percent_encoding::percent_decode_str;

#[cfg(feature = "lookup")]
pub(crate) use self::cache::{Looked, Lookups};
#[cfg(feature = "lookup")]
use crate::core::Key;

const MAX_VALUES: usize = 64;

/// Key of a lookup, and the values it was made from.
///
/// The function of a [`TierLookup`](crate::policy::TierLookup) or a [`key::lookup`](crate::key::lookup) receives it.
///
/// The values are as the client sent them, decoded but neither escaped nor hashed. They live no longer than the lookup:
/// no store, log, metric or `Debug` output has them, and results are cached by the key.
///
/// # Examples
///
/// ```
/// use tollgate::key::Lookup;
/// use tollgate::Quota;
///
/// const PRO: Quota = Quota::per_minute(5_000);
///
/// fn plan(user: &Lookup) -> Option<Quota> {
///     // The value of `x-api-key`, although its key holds only a hash of it.
///     (user.text()? == "sk_live_ada").then_some(PRO)
/// }
/// # let _ = plan;
/// ```
#[cfg(feature = "lookup")]
#[derive(Clone)]
#[must_use]
pub struct Lookup {
    key: Key,
    /// One for each part of a joined key. `None` for a hash without a known value.
    values: Vec<Option<Box<[u8]>>>,
}

#[derive(Clone, Default)]
pub(crate) struct RawValues {
    values: Vec<Box<[u8]>>,
}

#[cfg(feature = "lookup")]
impl Lookup {
    pub(crate) fn new(key: &Key, offered: &RawValues) -> Self {
        let values = key.joined().map(|(_, text)| offered.value_of(text)).collect();
        Self { key: key.clone(), values }
    }

    /// Returns the key, which is equal for equal values, and safe to log.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the value that the key was made from.
    ///
    /// It is `None` for the key of a [tuple](crate::key::KeyExtractor), whose values are in [`values`](Self::values),
    /// and for a key that is the result of [`Key::hashed`]: closures and other extractors return a
    /// [`Secret`](crate::key::Secret) instead, which has the value.
    pub fn raw(&self) -> Option<&[u8]> {
        match &self.values[..] {
            [only] => only.as_deref(),
            _ => None,
        }
    }

    /// Returns the [`raw`](Self::raw) value. `None` also if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.raw().and_then(|raw| std::str::from_utf8(raw).ok())
    }

    /// For the key of a tuple, returns the values of all parts in their order. For any other key, returns its only
    /// value.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::Lookup;
    ///
    /// /// The parts of `(key::header("x-tenant"), key::header("x-user"))`.
    /// fn tenant_and_user(lookup: &Lookup) -> Option<(&[u8], &[u8])> {
    ///     let mut values = lookup.values().flatten();
    ///     Some((values.next()?, values.next()?))
    /// }
    /// # let _ = tenant_and_user;
    /// ```
    pub fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.values.iter().map(Option::as_deref)
    }
}

impl RawValues {
    /// Keeps at most 64 values. A key from a later value is looked up without its value.
    pub(crate) fn push(&mut self, value: impl AsRef<[u8]>) {
        if self.values.len() < MAX_VALUES {
            self.values.push(value.as_ref().into());
        }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
    }

    #[cfg(feature = "lookup")]
    fn value_of(&self, text: &str) -> Option<Box<[u8]>> {
        if Key::is_hash(text) {
            return self.values.iter().find(|value| Key::hashed("", value).value() == text).cloned();
        }
        Some(percent_decode_str(text).collect())
    }
}

#[cfg(feature = "lookup")]
impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("key", &self.key).finish_non_exhaustive()
    }
}
