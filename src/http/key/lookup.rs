use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::extractor::shared;
use super::parts::offer_raw_values;
use super::{Extracted, KeyExtractor, KeyInfo};
use crate::core::{Error, MaybeFuture};
use crate::limiter::lookup::{Looked, Lookup, Lookups, RawValues};

/// Extractor that looks up a key by another key.
///
/// Created by [`lookup()`], which has the rules and an example. Clones share the cache and the lookups in flight,
/// unless an option is set on one of them.
#[derive(Clone)]
#[must_use]
pub struct KeyLookup {
    pub(super) by: Arc<dyn KeyExtractor>,
    lookups: Lookups<FoundKey>,
}

struct FoundKey(Extracted);

/// Identifies clients by the key that an asynchronous function returns for another key, such as the account of a token.
///
/// The function receives a [`Lookup`]: the other key, and the value the client sent, because the key may contain only a
/// hash of it. It returns one of the types that a [closure](super::from_fn) may return, or an error. The database that
/// the function queries is protected:
///
/// - Concurrent requests with one key share one lookup. The lookup continues even if their clients disconnect.
/// - A lookup starts only for a request that no other policy denies: policies whose key and quota are known at once are
///   checked first, without taking anything.
/// - At most 256 lookups are in flight ([`in_flight`](KeyLookup::in_flight)), and each may take 1 s
///   ([`timeout`](KeyLookup::timeout)). A request waits that long for its lookup, in addition to the
///   [timeout](crate::RateLimitLayer::timeout) of the decision that follows.
/// - The results for up to 10,000 keys are cached. A key is cached for 60 s ([`ttl`](KeyLookup::ttl)). A missing or
///   ambiguous key, or a response that rejects the request, is cached for at most 10 s. A lookup that failed, timed out
///   or panicked is cached for 1 s.
/// - An expired result is used for as long again if the fresh result takes longer than 10 ms, or is not available.
///
/// A key whose lookup failed is not a missing key: [`OnFailure`](crate::OnFailure#keys) decides what happens. At most
/// once a second, a warning is logged with the code `lookup_failed`, or with `lookups_full` if too many lookups were in
/// flight.
///
/// Clones share the cache and the lookups in flight. Outside of a tokio runtime each request makes its own lookups, and
/// they have no timeout.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tollgate::key::Lookup;
/// use tollgate::{Key, key};
///
/// async fn account_of(token: Lookup) -> Result<Option<Key>, io::Error> {
///     let Some(token) = token.text() else { return Ok(None) };
///     # let _ = token;
///     // ... queries a database ...
///     Ok(Some(Key::new("account", "7")))
/// }
///
/// let by_account = key::lookup(key::bearer(), account_of).capacity(50_000);
/// # let _ = by_account;
/// ```
pub fn lookup<K, F, T, R, E>(by: K, find: F) -> KeyLookup
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
                Ok(found) => match found.into() {
                    Extracted::Failed(error) => Err(error.into()),
                    Extracted::Secret(secret) => Ok(FoundKey(Extracted::Key(secret.key))),
                    found => Ok(FoundKey(found)),
                },
                Err(error) => Err(error.into()),
            }
        }
    });
    KeyLookup { by: shared(by), lookups }
}

impl KeyLookup {
    /// Sets for how many keys results are cached, instead of 10,000. With 0 nothing is cached.
    pub fn capacity(self, keys: usize) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.capacity = keys as u64), ..self }
    }

    /// Sets the TTL of a key, instead of 60 s.
    ///
    /// The TTL is at most 365 days. A missing or ambiguous key, or a response that rejects the request, is cached for
    /// 10 s, or for the TTL if that is shorter. A failed lookup is always cached for 1 s.
    pub fn ttl(self, lifetime: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.lifetime = lifetime), ..self }
    }

    /// Sets the timeout of a lookup, 1 s by default. A request without a cached result waits no longer than this.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.timeout = timeout), ..self }
    }

    /// Sets how many lookups may be in flight at a time, instead of 256. 0 is taken as 1.
    pub fn in_flight(self, lookups: usize) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.in_flight = lookups), ..self }
    }
}

#[diagnostic::do_not_recommend]
impl KeyExtractor for KeyLookup {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        let by = match self.by.extract(parts) {
            MaybeFuture::Ready(by) => by,
            MaybeFuture::Pending(by) => {
                let lookups = self.lookups.clone();
                return MaybeFuture::pending(async move { find(&lookups, by.await, |_| {}).wait().await });
            }
        };
        find(&self.lookups, by, |offered| offer_raw_values(&*self.by, parts, offered))
    }

    fn info(&self) -> KeyInfo {
        let KeyInfo { missing_key, needs_peer, needs_route, .. } = self.by.info();
        KeyInfo { missing_key, needs_peer, needs_route, ..KeyInfo::default() }
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.by.address(parts)
    }
}

/// Calls `offer` only if nothing is cached.
fn find(lookups: &Lookups<FoundKey>, by: Extracted, offer: impl FnOnce(&mut RawValues)) -> MaybeFuture<Extracted> {
    let (key, mut offered) = match by.into_key() {
        Ok(by) => by,
        Err(other) => return MaybeFuture::Ready(other),
    };
    let offered = || {
        offer(&mut offered);
        offered
    };
    let extracted = |found: Result<FoundKey, Error>| match found {
        Ok(FoundKey(found)) => found,
        Err(error) => Extracted::Failed(Box::new(error)),
    };
    match lookups.find(&key, offered) {
        MaybeFuture::Ready(found) => MaybeFuture::Ready(extracted(found)),
        MaybeFuture::Pending(finding) => MaybeFuture::pending(async move { extracted(finding.await) }),
    }
}

impl Clone for FoundKey {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Extracted::Key(key) => Extracted::Key(key.clone()),
            Extracted::Missing => Extracted::Missing,
            Extracted::Rejected(response) => Extracted::Rejected(response.clone()),
            _ => Extracted::Ambiguous,
        })
    }
}

impl Looked for FoundKey {
    fn is_nothing(&self) -> bool {
        !matches!(self.0, Extracted::Key(_))
    }
}

impl fmt::Debug for KeyLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLookup").finish_non_exhaustive()
    }
}
