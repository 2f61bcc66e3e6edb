//! Two keys as one.

use std::net::IpAddr;

use http::request::Parts;

use super::{Extracted, KeyExtractor, ListEntry};
use crate::policy::MissingKey;
use crate::store::Answer;

/// Each pair of two keys. See [`KeyExtractor::and`].
#[derive(Clone, Debug)]
pub struct Join<A, B> {
    first: A,
    second: B,
}

impl<A, B> Join<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Join<A, B> {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        match (self.first.extract(parts), self.second.extract(parts)) {
            (Answer::Ready(first), Answer::Ready(second)) => Answer::Ready(join(first, second)),
            (first, second) => Answer::Pending(Box::pin(join_later(first, second))),
        }
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        self.first.can_match(entry) || self.second.can_match(entry)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.first.address(parts).or_else(|| self.second.address(parts))
    }

    /// Shared if either would be: a pair must not escape a limit that one of them would not.
    fn missing_key(&self) -> MissingKey {
        match (self.first.missing_key(), self.second.missing_key()) {
            (MissingKey::Skip, second) => second,
            (first, MissingKey::Skip) => first,
            (MissingKey::Deny, _) | (_, MissingKey::Deny) => MissingKey::Deny,
            _ => MissingKey::Share,
        }
    }
}

async fn join_later(first: Answer<Extracted>, second: Answer<Extracted>) -> Extracted {
    join(first.wait().await, second.wait().await)
}

fn join(first: Extracted, second: Extracted) -> Extracted {
    match (first, second) {
        (Extracted::Key(first), Extracted::Key(second)) => Extracted::Key(first.join(&second)),
        (Extracted::Rejected(response), _) | (_, Extracted::Rejected(response)) => Extracted::Rejected(response),
        _ => Extracted::Missing,
    }
}
