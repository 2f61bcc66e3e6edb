//! The key that all requests share.
//!
//! A policy starts with it, until another is set: a limit of the whole application needs no client.

use std::fmt;

use http::request::Parts;

use super::{Bannable, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;

const KEY: Key = Key::fixed("global:");

/// The extractor that [`global`] returns: the same key for each request.
#[derive(Clone, Copy, Debug)]
struct Global;

/// Counts all requests together, in one counter.
///
/// It is the key of a policy that has no other. Lists of values make no sense with it: a layer is not built with one.
///
/// # Examples
///
/// ```
/// use tollgate::{Policy, Quota, key};
///
/// // No more than 5,000 requests per second, whoever sends them.
/// let policy = Policy::new("capacity", Quota::per_second(5_000)).key(key::global());
/// # let _ = policy;
/// ```
#[must_use]
pub fn global() -> impl KeyExtractor + Copy + fmt::Debug {
    Global
}

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(KEY))
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("global").bannable(Bannable::Shared).unforgeable()
    }

    /// Its only value is empty.
    fn key_of(&self, value: &[u8]) -> Option<Key> {
        value.is_empty().then_some(KEY)
    }
}
