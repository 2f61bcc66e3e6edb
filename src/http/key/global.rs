//! One counter for all.

use std::fmt;

use http::request::Parts;

use super::{Extracted, Key, KeyExtractor, ListEntry};
use crate::core::Answer;

/// The same key for every request.
#[derive(Clone, Copy, Debug)]
struct Global;

/// Counts all requests together.
pub fn global() -> impl KeyExtractor + Copy + fmt::Debug {
    Global
}

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(Key::fixed("global:")))
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        // All requests have the same key: a list of it would be of all clients or of none.
        let _ = entry;
        false
    }

    fn is_proven(&self) -> bool {
        true
    }
}
