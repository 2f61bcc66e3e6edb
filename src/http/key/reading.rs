//! Reading of values that clients send: which of several values counts, and in which form it is compared.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderValue};

use super::extracted::Ambiguous;

type Normalize = dyn Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync;

#[derive(Clone)]
pub(super) struct Choices {
    pub(super) pick: Pick,
    pub(super) ignores_case: bool,
    pub(super) normalize: Option<Arc<Normalize>>,
}

impl Choices {
    pub(super) fn new() -> Self {
        Self { pick: Pick::Same, ignores_case: false, normalize: None }
    }

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
}

pub(super) type Value<'a> = Result<Option<Cow<'a, [u8]>>, Ambiguous>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Same,
    First,
    Last,
}

impl Pick {
    pub(super) fn pick<T: PartialEq>(self, values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
        if self == Pick::Same { same(values) } else { Ok(self.one_of(values)) }
    }

    pub(super) fn one_of<T>(self, mut values: impl Iterator<Item = T>) -> Option<T> {
        if self == Pick::Last { values.last() } else { values.next() }
    }
}

pub(super) fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
    let Some(first) = values.next() else { return Ok(None) };
    if values.all(|value| value == first) { Ok(Some(first)) } else { Err(Ambiguous) }
}

pub(super) fn text(value: &[u8]) -> Option<&[u8]> {
    str::from_utf8(value).ok().map(str::as_bytes)
}

pub(super) fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// HTTP/2 keeps white space, HTTP/1 drops it: <https://www.rfc-editor.org/rfc/rfc9110#section-5.5>.
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

pub(crate) fn lines(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).iter().map(|line| trimmed(line.as_bytes()))
}

pub(crate) fn carried(value: &[u8]) -> Option<&[u8]> {
    HeaderValue::from_bytes(value).is_ok().then(|| trimmed(value))
}
