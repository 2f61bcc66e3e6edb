//! What the limiter itself queries while a request waits: keys and quotas by a key, shielded.

mod flight;
mod memory;
mod settings;
mod shared;
mod warning;

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::Key;

pub(crate) use self::memory::Looked;
pub(crate) use self::shared::Lookups;
pub(crate) use self::warning::Warning;

/// Values offered at most: requests may be full of them.
const MOST_VALUES: usize = 64;

/// What is looked up: a key, and the values it was made of.
///
/// The values are as the client sent them, decoded but neither escaped nor hashed. They live as long as
/// the look-up: no store, log, metric or `Debug` output has them, and answers are remembered by the key.
///
/// # Examples
///
/// ```
/// use tollgate::{Lookup, Quota};
///
/// const PRO: Quota = Quota::per_minute(5_000);
///
/// fn plan(user: &Lookup) -> Option<Quota> {
///     // The value of `x-api-key`, although its key holds only a hash of it.
///     (user.text()? == "sk_live_ada").then_some(PRO)
/// }
/// # let _ = plan;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Lookup {
    key: Key,
    /// One for each key that was joined.
    values: Vec<Option<Box<[u8]>>>,
}

/// Values that a key may hold a hash of, as an extractor offers them to a [`Lookup`].
#[derive(Clone, Default)]
#[must_use]
pub struct RawValues {
    values: Vec<Box<[u8]>>,
    /// There may be others that nobody offers.
    lacks_some: bool,
}

impl Lookup {
    pub(crate) fn new(key: &Key, offered: &RawValues) -> Self {
        let values = key.values().map(|text| offered.value_of(text)).collect();
        Self { key: key.clone(), values }
    }

    /// The key: the same for the same values, and safe to log.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The value.
    ///
    /// `None` if the key is a [join](crate::key::KeyExtractor::and), of which [`values`](Self::values)
    /// has each, or was made as a hash by code that did not offer the value: closures return a
    /// [`Secret`](crate::key::Secret) instead of [`Key::hashed`], and other extractors have
    /// [`raw_values`](crate::key::KeyExtractor::raw_values).
    pub fn raw(&self) -> Option<&[u8]> {
        match &self.values[..] {
            [only] => only.as_deref(),
            _ => None,
        }
    }

    /// The [`raw`](Self::raw) value, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.raw().and_then(|raw| std::str::from_utf8(raw).ok())
    }

    /// The values of keys that were joined, in their order; else the only one.
    pub fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.values.iter().map(Option::as_deref)
    }
}

impl RawValues {
    /// Offers a value. More than 64 are not kept: a request says no more that mean a client.
    pub fn push(&mut self, value: impl AsRef<[u8]>) {
        if self.values.len() == MOST_VALUES {
            self.lack();
        } else {
            self.values.push(value.as_ref().into());
        }
    }

    /// Offers a value that may not be there.
    pub(crate) fn push_any(&mut self, value: Option<impl AsRef<[u8]>>) {
        if let Some(value) = value {
            self.push(value);
        }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
        self.lacks_some |= other.lacks_some;
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Says that there may be values beside those that are offered.
    pub(crate) fn lack(&mut self) {
        self.lacks_some = true;
    }

    /// Whether these are all the values there may be.
    pub(crate) fn are_all(&self) -> bool {
        !self.lacks_some && !self.values.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.values.iter().map(|value| &**value)
    }

    /// The value that stands in a key as `text`.
    fn value_of(&self, text: &str) -> Option<Box<[u8]>> {
        if Key::is_hash(text) {
            return self.values.iter().find(|value| Key::hashed("", value).value() == text).cloned();
        }
        Some(percent_decode_str(text).collect())
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for RawValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawValues").finish_non_exhaustive()
    }
}
