//! The trait of key extractors and what they answer.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::MissingKey;
use super::{Join, Key, ListEntry, Secret};
use crate::core::Answer;
use crate::{Error, RawValues};

/// What an extractor finds in a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Extracted {
    /// The key to count.
    Key(Key),
    /// The key to count, with the value it is a hash of.
    Secret(Box<Secret>),
    /// The request has none: the policy's [`MissingKey`] rule decides.
    Missing,
    /// The request names several clients, or one that cannot be told for certain: a header twice with
    /// different values, say. It is never a key of its own, and never none: the policy's [`MissingKey`]
    /// rule says whether such requests are refused or share one counter.
    Ambiguous,
    /// The request is refused with this response.
    Rejected(Box<Response<Bytes>>),
    /// It is not known whether it has one: [`OnFailure`](crate::OnFailure#keys) decides.
    Failed(Box<Error>),
}

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
        Join::new(self, other)
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

/// The kind of keys made from bare text.
const KIND: &str = "key";

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Extracted::Key(key)
    }
}

impl From<String> for Extracted {
    fn from(text: String) -> Self {
        of_text(text)
    }
}

impl From<&'static str> for Extracted {
    fn from(text: &'static str) -> Self {
        of_text(text)
    }
}

fn of_text(text: impl AsRef<[u8]>) -> Extracted {
    let key = Key::new(KIND, &text);
    if Key::is_hash(key.value()) { Secret::of(key, text).into() } else { Extracted::Key(key) }
}

impl<T: Into<Extracted>> From<Option<T>> for Extracted {
    fn from(found: Option<T>) -> Self {
        found.map_or(Extracted::Missing, Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Response<Bytes>>> for Extracted {
    fn from(found: Result<T, Response<Bytes>>) -> Self {
        found.map_or_else(|response| Extracted::Rejected(Box::new(response)), Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Box<Response<Bytes>>>> for Extracted {
    fn from(found: Result<T, Box<Response<Bytes>>>) -> Self {
        found.map_or_else(Extracted::Rejected, Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Error>> for Extracted {
    fn from(found: Result<T, Error>) -> Self {
        found.map_or_else(|error| Extracted::Failed(Box::new(error)), Into::into)
    }
}
