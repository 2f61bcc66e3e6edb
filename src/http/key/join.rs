//! Joins two keys into one.
//!
//! A [`Join`] has a key only if both parts have one, and is certain only if both are. Where a part is missing,
//! ambiguous, rejected or failed, the joined key is the worse of the two: rejected, then failed, ambiguous, missing.
//! So no client evades one part by changing the other.

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;

use http::request::Parts;

use super::extractor::Join;
use super::{Extracted, Key, KeyExtractor, KeyInfo, Secret};
use crate::core::Answer;
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

    fn info(&self) -> KeyInfo {
        self.first.info().and(self.second.info())
    }

    /// Its parts have values, and it has none itself.
    fn key_of(&self, _: &[u8]) -> Option<Key> {
        None
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.first.address(parts).or_else(|| self.second.address(parts))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        self.first.raw_values(parts, offered);
        self.second.raw_values(parts, offered);
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
        (first, second) => match (first.into_key(), second.into_key()) {
            (Ok((first, mut offered)), Ok((second, others))) => {
                offered.append(others);
                Secret::joined(first.join(&second), offered).into()
            }
            _ => Extracted::Missing,
        },
    }
}
