//! Joins two keys into one.
//!
//! A [`Join`] has a key only if both parts have one, and is certain only if both are. Where a part is missing,
//! ambiguous, rejected or failed, the joined key is the worse of the two: rejected, then failed, ambiguous, missing.
//! So no client evades one part by changing the other.

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::IpAddr;
#[cfg(feature = "axum")]
use std::sync::Arc;
use std::task::Poll;

use http::request::Parts;

use super::MissingKey;
#[cfg(feature = "axum")]
use super::client_settings::ClientSettings;
use super::extractor::Join;
#[cfg(feature = "axum")]
use super::extractor::bound;
use super::{Bannable, Extracted, Key, KeyExtractor, ListEntry, Needs, Secret, of_value};
use crate::core::{Answer, Error};
use crate::lookup::RawValues;

impl KeyExtractor for Join {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        match (self.first.extract(parts), self.second.extract(parts)) {
            (Answer::Ready(first), Answer::Ready(second)) => Answer::Ready(join(first, second)),
            (first, second) => Answer::pending(async move {
                let (first, second) = both(first, second).await;
                join(first, second)
            }),
        }
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        self.first.can_match(entry) || self.second.can_match(entry)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offer(&self.first, parts, offered);
        offer(&self.second, parts, offered);
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.first.address(parts).or_else(|| self.second.address(parts))
    }

    fn address_in_key(&self, parts: &Parts) -> Option<IpAddr> {
        self.first.address_in_key(parts).or_else(|| self.second.address_in_key(parts))
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

    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        self.first.keys(parts, found);
        self.second.keys(parts, found);
    }

    fn is_proven(&self) -> bool {
        self.first.is_proven() && self.second.is_proven()
    }

    fn needs(&self) -> Needs {
        self.first.needs().and(self.second.needs())
    }

    #[cfg(feature = "axum")]
    fn bound_to(&self, layer: &ClientSettings) -> Result<Option<Arc<dyn KeyExtractor>>, Error> {
        Ok(Some(Arc::new(Self { first: bound(&self.first, layer)?, second: bound(&self.second, layer)? })))
    }

    fn bannable(&self) -> Bannable {
        self.first.bannable().and(self.second.bannable())
    }

    fn kind(&self) -> Option<Cow<'_, str>> {
        Some(format!("{}+{}", self.first.kind()?, self.second.kind()?).into())
    }

    fn key_of(&self, values: &[&[u8]]) -> Result<Key, Error> {
        let kind = self.first.kind().ok_or_else(of_value::unknown)?;
        // Each of the first values is one of a part.
        let parts = kind.split('+').count();
        let (first, second) = values.split_at_checked(parts).ok_or_else(|| {
            Error::invalid(format!("{} values were given for key \"{kind}\" and what is joined to it", values.len()))
        })?;
        Ok(self.first.key_of(first)?.join(&self.second.key_of(second)?))
    }
}

/// Offers the values of a part. One that offers none may still have values, so the offer is incomplete.
fn offer(part: &impl KeyExtractor, parts: &Parts, offered: &mut RawValues) {
    let before = offered.len();
    part.raw_values(parts, offered);
    if offered.len() == before {
        offered.lack();
    }
}

/// Waits for two extractors concurrently.
async fn both<T>(mut first: Answer<T>, mut second: Answer<T>) -> (T, T) {
    poll_fn(|cx| if first.is_ready(cx) & second.is_ready(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    (first.wait().await, second.wait().await)
}

/// Joins what two extractors return.
fn join(first: Extracted, second: Extracted) -> Extracted {
    match (first, second) {
        (Extracted::Key(first), Extracted::Key(second)) => Extracted::Key(first.join(&second)),
        (Extracted::Rejected(response), _) | (_, Extracted::Rejected(response)) => Extracted::Rejected(response),
        (Extracted::Failed(error), _) | (_, Extracted::Failed(error)) => Extracted::Failed(error),
        (Extracted::Ambiguous, _) | (_, Extracted::Ambiguous) => Extracted::Ambiguous,
        (Extracted::Missing, _) | (_, Extracted::Missing) => Extracted::Missing,
        (first, second) => join_secrets(first, second),
    }
}

/// Joins two keys, at least one of which comes with its value.
fn join_secrets(first: Extracted, second: Extracted) -> Extracted {
    let Some(((first, mut offered), (second, others))) = with_values(first).zip(with_values(second)) else {
        return Extracted::Missing;
    };
    offered.append(others);
    Secret::joined(first.join(&second), offered).into()
}

/// Returns a key with the values offered for it; `None` if there is no key.
fn with_values(extracted: Extracted) -> Option<(Key, RawValues)> {
    match extracted {
        Extracted::Key(key) => Some((key, RawValues::default())),
        Extracted::Secret(secret) => Some(secret.into_parts()),
        _ => None,
    }
}
