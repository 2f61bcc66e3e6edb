//! The trait of key extractors, and two of them as one.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::extracted::Extracted;
use super::list_entry::ListEntry;
use super::missing::MissingKey;
use crate::core::Answer;
use crate::{Key, RawValues};

/// Finds out who is counted.
///
/// Closures over `&Parts` are extractors if they return a [`Key`], a `String` or a `&'static str`,
/// an `Option` of one of them, or an [`Extracted`]. For what has to be waited for there is
/// [`lookup`](super::lookup), which shields what is queried.
pub trait KeyExtractor: Send + Sync + 'static {
    /// Extracts the key, at once or with a future.
    ///
    /// The future is polled only if no policy refuses the request whose key is known at once, and only
    /// as long as the [budget](crate::RateLimitLayer::budget) allows.
    fn extract(&self, parts: &Parts) -> Answer<Extracted>;

    /// What a policy does with requests that have no key, unless it says otherwise.
    fn missing_key(&self) -> MissingKey {
        MissingKey::Skip
    }

    /// The client's address, if this is a key by which it is known.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Whether an entry of a list to [allow](crate::Policy::allow) or [deny](crate::Policy::deny) can match
    /// some request, by its key, by a part of its key, or by an address known to this extractor.
    ///
    /// Lists with entries that cannot are refused when a layer is given their policy. `true` if it is not
    /// known.
    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        let _ = entry;
        true
    }

    /// Offers the values of which the key of this request may hold a hash, for look-ups by it; where the
    /// key is [ambiguous](Extracted::Ambiguous), every value the application may see in its place.
    ///
    /// Called only for a look-up, see [`Lookup::raw`](crate::Lookup::raw), and for an ambiguous request of
    /// a policy that [denies](crate::Policy::deny) values.
    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        let _ = (parts, offered);
    }

    /// Finds the keys of a request of which this is made: its own, and of a joined key those of the parts that
    /// the request has.
    ///
    /// Called only for a request without a key, of a policy that [denies](crate::Policy::deny) values: so that
    /// nobody passes by leaving another part out. Nothing is looked up for it.
    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        match self.extract(parts) {
            Answer::Ready(Extracted::Key(key)) => found.push(key),
            Answer::Ready(Extracted::Secret(secret)) => found.push(secret.key().clone()),
            _ => {}
        }
    }

    /// Whether a client cannot have another client's key by what it writes into a request: its connection
    /// or the server says the key, or the key stands for no client.
    ///
    /// A [status service](crate::RateLimitLayer::status_service) for all shows policies with such keys only.
    fn is_proven(&self) -> bool {
        false
    }

    /// Counts each pair of this key and another's.
    fn and<K: KeyExtractor>(self, other: K) -> Join<Self, K>
    where
        Self: Sized,
    {
        Join { first: self, second: other }
    }
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(self(parts).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value()
    }
}

impl KeyExtractor for Arc<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        (**self).extract(parts)
    }

    fn missing_key(&self) -> MissingKey {
        (**self).missing_key()
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).address(parts)
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        (**self).can_match(entry)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        (**self).raw_values(parts, offered);
    }

    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        (**self).keys(parts, found);
    }

    fn is_proven(&self) -> bool {
        (**self).is_proven()
    }
}

/// Each pair of two keys. See [`KeyExtractor::and`].
#[derive(Clone, Debug)]
pub struct Join<A, B> {
    pub(super) first: A,
    pub(super) second: B,
}
