//! A key that has to be looked up.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::MissingKey;
use super::{Extracted, Key, KeyExtractor, ListEntry};
use crate::core::Answer;
use crate::lookup::{Looked, Lookups};
use crate::{Error, Lookup, RawValues};

/// A key that is looked up by another. See [`lookup`].
#[derive(Clone)]
#[must_use]
pub struct KeyLookup<K> {
    by: K,
    lookups: Lookups<FoundKey>,
}

/// What is remembered of a look-up.
#[derive(Clone)]
enum FoundKey {
    Key(Key),
    Missing,
    Ambiguous,
    Rejected(Arc<Response<Bytes>>),
}

/// Counts by what a function finds by another key, such as the account of a token.
///
/// The function gets a [`Lookup`]: the other key, and the value the client sent, which the key may only
/// hold a hash of. It returns what a [closure](super::from_fn) may, or an error. The limiter shields what
/// is queried:
///
/// - Requests that come together with one value share one look-up. It goes on when they are gone.
/// - It is made only for requests that no policy refuses whose key and quota are known at once: they
///   are looked at first, without taking anything.
/// - At most 256 are under way ([`in_flight`](KeyLookup::in_flight)), and one may take 50 ms
///   ([`timeout`](KeyLookup::timeout)); a request waits for it no longer than its
///   [budget](crate::RateLimitLayer::budget) allows.
/// - Up to 10,000 keys are remembered, for 60 s; that there is none, or none for certain, and a response that
///   refuses, for 10 s; that a look-up failed, took too long or panicked, for 1 s.
///
/// A key that could not be looked up is not one that is missing: what happens then is what
/// [`OnFailure`](crate::OnFailure#keys) says. It is logged with the code `lookup_failed`, or `lookups_full`
/// where one more would have been too many, once a second at most.
///
/// Clones share what is remembered and under way. Outside of a tokio runtime each request makes its
/// look-ups by itself, in any time.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tollgate::{Key, Lookup, key};
///
/// async fn account_of(token: Lookup) -> Result<Option<Key>, io::Error> {
///     let Some(token) = token.text() else { return Ok(None) };
///     # let _ = token;
///     // asks a database
///     Ok(Some(Key::new("account", "7")))
/// }
///
/// let by_account = key::lookup(key::bearer(), account_of);
/// # let _ = by_account;
/// ```
pub fn lookup<K, F, T, R, E>(by: K, find: F) -> KeyLookup<K>
where
    K: KeyExtractor,
    F: Fn(Lookup) -> T + Send + Sync + 'static,
    T: Future<Output = Result<R, E>> + Send + 'static,
    R: Into<Extracted>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let lookups = Lookups::new(move |wanted| {
        let found = find(wanted);
        async move {
            match found.await {
                Ok(found) => FoundKey::of(found.into()).map_err(Into::into),
                Err(error) => Err(error.into()),
            }
        }
    });
    KeyLookup { by, lookups }
}

impl<K> KeyLookup<K> {
    /// Sets how many keys are remembered at most, instead of 10,000.
    pub fn capacity(self, keys: u64) -> Self {
        Self { lookups: self.lookups.capacity(keys), ..self }
    }

    /// Sets how long a key is remembered, instead of 60 s.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self { lookups: self.lookups.lifetime(lifetime), ..self }
    }

    /// Sets how long a look-up may take, instead of 50 ms. Requests wait no longer than their
    /// [budget](crate::RateLimitLayer::budget) allows; what comes later is remembered.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { lookups: self.lookups.timeout(timeout), ..self }
    }

    /// Sets how many look-ups are under way at a time, at most, instead of 256; 0 is taken as 1.
    pub fn in_flight(self, lookups: usize) -> Self {
        Self { lookups: self.lookups.in_flight(lookups), ..self }
    }

    fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> Answer<Extracted> {
        match self.lookups.find(key, offered) {
            Answer::Ready(found) => Answer::Ready(found.into()),
            Answer::Pending(finding) => Answer::pending(async move { finding.await.into() }),
        }
    }

    /// What a key leads to that had to be waited for itself.
    async fn find_later(lookups: Lookups<FoundKey>, by: Extracted) -> Extracted {
        let (key, offered) = match by {
            Extracted::Key(key) => (key, RawValues::default()),
            Extracted::Secret(secret) => secret.into_parts(),
            other => return other,
        };
        lookups.find(&key, || offered).wait().await.into()
    }
}

impl<K: KeyExtractor> KeyExtractor for KeyLookup<K> {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        match self.by.extract(parts) {
            Answer::Ready(Extracted::Key(key)) => self.find(&key, || {
                let mut offered = RawValues::default();
                self.by.raw_values(parts, &mut offered);
                offered
            }),
            Answer::Ready(Extracted::Secret(secret)) => {
                let (key, mut offered) = secret.into_parts();
                self.by.raw_values(parts, &mut offered);
                self.find(&key, || offered)
            }
            Answer::Ready(other) => Answer::Ready(other),
            Answer::Pending(pending) => {
                let lookups = self.lookups.clone();
                Answer::pending(async move { Self::find_later(lookups, pending.await).await })
            }
        }
    }

    fn missing_key(&self) -> MissingKey {
        self.by.missing_key()
    }

    /// None: they would have to be looked up.
    fn keys(&self, _: &Parts, _: &mut Vec<Key>) {}

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.by.address(parts)
    }

    /// Any value may be found; addresses are those of the other key.
    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value() || self.by.can_match(entry)
    }
}

impl FoundKey {
    fn of(extracted: Extracted) -> Result<Self, Error> {
        Ok(match extracted {
            Extracted::Key(key) => FoundKey::Key(key),
            Extracted::Secret(secret) => FoundKey::Key(secret.into_parts().0),
            Extracted::Missing => FoundKey::Missing,
            Extracted::Ambiguous => FoundKey::Ambiguous,
            Extracted::Rejected(response) => FoundKey::Rejected(Arc::new(*response)),
            Extracted::Failed(error) => return Err(*error),
        })
    }
}

impl Looked for FoundKey {
    fn is_nothing(&self) -> bool {
        !matches!(self, FoundKey::Key(_))
    }
}

impl From<Result<FoundKey, Error>> for Extracted {
    fn from(found: Result<FoundKey, Error>) -> Self {
        match found {
            Ok(FoundKey::Key(key)) => Extracted::Key(key),
            Ok(FoundKey::Missing) => Extracted::Missing,
            Ok(FoundKey::Ambiguous) => Extracted::Ambiguous,
            Ok(FoundKey::Rejected(response)) => Extracted::Rejected(Box::new(Response::clone(&response))),
            Err(error) => Extracted::Failed(Box::new(error)),
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for KeyLookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLookup").field("by", &self.by).finish_non_exhaustive()
    }
}
