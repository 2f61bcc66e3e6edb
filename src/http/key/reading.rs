//! Which of several values counts, and the form in which it is compared.
//!
//! The options that headers, cookies, query parameters and user names have in common: `first`, `last`, `ignore_case`
//! and `normalize`. Without them all values have to be the same in normal form; otherwise they are ambiguous.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::Ambiguous;

/// A function that returns the normal form of a value.
type Normalize = dyn Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync;

/// How an extractor reads values.
#[derive(Clone, Default)]
pub(crate) struct Reading {
    pick: Pick,
    /// Whether ASCII letters are lower-cased, after `normalize`.
    ignores_case: bool,
    normalize: Option<Arc<Normalize>>,
}

/// Which of several values counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pick {
    /// The one that all of them equal.
    #[default]
    Same,
    First,
    Last,
}

impl Reading {
    pub(crate) fn first(self) -> Self {
        Self { pick: Pick::First, ..self }
    }

    pub(crate) fn last(self) -> Self {
        Self { pick: Pick::Last, ..self }
    }

    pub(crate) fn ignore_case(self) -> Self {
        Self { ignores_case: true, ..self }
    }

    pub(super) fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        Self { normalize: Some(Arc::new(normalize)), ..self }
    }

    pub(super) fn pick(&self) -> Pick {
        self.pick
    }

    /// Returns the normal form of a value.
    pub(super) fn form<'a>(&self, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let value = match (&self.normalize, value) {
            (None, value) => value,
            (Some(normalize), Cow::Borrowed(value)) => normalize(value),
            (Some(normalize), Cow::Owned(value)) => Cow::Owned(normalize(&value).into_owned()),
        };
        if self.ignores_case && value.iter().any(u8::is_ascii_uppercase) {
            return Cow::Owned(value.to_ascii_lowercase());
        }
        value
    }

    /// Whether a value is the normal form of some value that `may_come` in a request.
    pub(super) fn yields(&self, value: &[u8], may_come: impl FnOnce(&[u8]) -> bool) -> bool {
        // A closure may return what no request can carry.
        *self.form(Cow::Borrowed(value)) == *value && (self.normalize.is_some() || may_come(value))
    }
}

impl Pick {
    /// Returns the value that counts, if there is one.
    pub(super) fn of<T: PartialEq>(self, values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
        if self == Pick::Same { same(values) } else { Ok(self.one_of(values)) }
    }

    /// Returns the last value for `Last`, otherwise the first.
    pub(super) fn one_of<T>(self, mut values: impl Iterator<Item = T>) -> Option<T> {
        if self == Pick::Last { values.last() } else { values.next() }
    }
}

/// Returns the value that all values equal; they are ambiguous if they differ.
pub(super) fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
    let Some(first) = values.next() else { return Ok(None) };
    if values.all(|value| value == first) { Ok(Some(first)) } else { Err(Ambiguous) }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pick, ignores_case, normalize } = self;
        let mut shown = f.debug_struct("Reading");
        shown.field("pick", pick).field("ignores_case", ignores_case).field("normalizes", &normalize.is_some());
        shown.finish()
    }
}

/// Returns the bytes of a text, without copying it.
#[cfg(any(feature = "axum", feature = "query"))]
pub(super) fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
