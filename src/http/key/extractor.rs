//! The trait of key extractors, its implementation for closures, and joined keys.
//!
//! A [`Join`] has a key only if both parts have one, and is certain only if both are. Where a part is missing,
//! ambiguous, rejected or failed, the joined key is the worse of the two: rejected, then failed, ambiguous, missing.
//! So no client evades one part by changing the other.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use http::request::Parts;

use super::extracted::{Extracted, Secret};
use super::info::KeyInfo;
use crate::core::{Key, MaybeFuture};
use crate::lookup::RawValues;

/// Extracts the key that identifies the client of a request.
///
/// Closures over `&Parts` are extractors if they return a [`Key`], a `String` or a `&'static str`, an `Option` of one
/// of them, a `Result` as [`from_fn`](super::from_fn) describes it, or an [`Extracted`]. For keys that have to be
/// waited for there is [`lookup`](super::lookup), which protects the database it queries.
///
/// An extractor has five methods, and [`and`](Self::and) is a combinator. A [`Policy`](crate::Policy) calls
/// [`info`](Self::info) when its key is set and when it is given to a layer, and never for a request.
///
/// # Examples
///
/// A type that is an extractor, and that knows which keys requests can have:
///
/// ```
/// use http::request::Parts;
/// use tollgate::key::{Extracted, KeyExtractor, KeyInfo};
/// use tollgate::store::MaybeFuture;
/// use tollgate::policy::AccessList;
/// use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
///
/// /// Clients by their version, in a header that the application's gateway sets: `1` to `9`.
/// #[derive(Clone)]
/// struct ClientVersion;
///
/// impl KeyExtractor for ClientVersion {
///     fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
///         let version = parts.headers.get("x-version");
///         MaybeFuture::Ready(version.and_then(|version| self.key_of(version.as_bytes())).into())
///     }
///
///     fn info(&self) -> KeyInfo {
///         KeyInfo::new("version")
///     }
///
///     fn key_of(&self, value: &[u8]) -> Option<Key> {
///         matches!(value, [b'1'..=b'9']).then(|| Key::new("version", value))
///     }
/// }
///
/// let policy = Policy::new("version", Quota::per_minute(100)).key(ClientVersion);
/// assert_eq!(policy.key_of("3")?.as_str(), "version:3");
/// let layer = |version| RateLimitLayer::try_new(MemoryStore::new(), policy.clone().deny(AccessList::default().key(version)));
/// assert!(layer("3").is_ok());
/// assert!(layer("10").is_err(), "no client has this version");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key extractor",
    label = "expected an extractor, such as `key::client_ip()` or `key::header(\"x-api-key\")`",
    note = "a closure is one if it takes `&Parts` and returns a `Key`, text, or an `Option` or `Result` of one of them; see `key::from_fn`"
)]
pub trait KeyExtractor: Any + Send + Sync {
    /// Extracts the key, at once or with a future.
    ///
    /// # Cancellation
    ///
    /// A future is polled only if no policy whose key is known at once refuses the request, and only for as long as
    /// the [timeout](crate::RateLimitLayer::timeout) allows. It may be dropped before it is ready, also unpolled.
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted>;

    /// Returns what is known of the keys before there is a request. By default nothing is.
    fn info(&self) -> KeyInfo {
        KeyInfo::default()
    }

    /// Returns the key of a request with a value, which is neither escaped nor hashed; `None` if no request can have it.
    ///
    /// [`Policy::key_of`](crate::Policy::key_of) calls it, if the [kind](KeyInfo::kind) is known. It also decides which
    /// entries an [allow](crate::Policy::allow) list or a [deny](crate::Policy::deny) list may have: a layer is not built
    /// with an entry that is not the value of its own key. By default each value is.
    fn key_of(&self, value: &[u8]) -> Option<Key> {
        Some(Key::new(&self.info().kind?, value))
    }

    /// Returns the client's address, if this extractor has it; by default it has none.
    ///
    /// Lists of addresses compare it, for each request of a policy that has one.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Offers the values that the key of this request contains hashes of, for [lookups](crate::key::Lookup::raw) by the key.
    ///
    /// Called only for a lookup. By default nothing is offered: such a lookup has no raw value.
    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        let _ = (parts, offered);
    }

    /// Joins this key with another's: each pair has a counter of its own.
    ///
    /// A request without one of the two has no joined key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{self, Extracted, KeyExtractor};
    /// use tollgate::store::MaybeFuture;
    ///
    /// let by_tenant_and_method = key::header("x-tenant").plain().and(key::method());
    ///
    /// let (parts, ()) = http::Request::get("/").header("x-tenant", "acme").body(())?.into_parts();
    /// let MaybeFuture::Ready(Extracted::Key(key)) = by_tenant_and_method.extract(&parts) else { panic!("it has both") };
    /// assert_eq!(key.as_str(), "header x-tenant+method:acme|GET");
    /// # Ok::<(), http::Error>(())
    /// ```
    fn and<K: KeyExtractor>(self, other: K) -> Join
    where
        Self: Sized,
    {
        Join { first: shared(self), second: shared(other) }
    }
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(self(parts).into())
    }
}

impl KeyExtractor for Arc<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        (**self).extract(parts)
    }

    fn info(&self) -> KeyInfo {
        (**self).info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        (**self).key_of(value)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).address(parts)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        (**self).raw_values(parts, offered);
    }
}

/// An extractor of pairs of two keys.
///
/// Made by [`KeyExtractor::and`], which has an example. Both extractors run for each request, and what is not ready is
/// waited for at the same time.
#[derive(Clone)]
#[must_use]
pub struct Join {
    pub(super) first: Arc<dyn KeyExtractor>,
    pub(super) second: Arc<dyn KeyExtractor>,
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}

/// Returns an extractor that can be cloned: itself if it is shared, however often, so that its own type is found in it.
pub(crate) fn shared(key: impl KeyExtractor) -> Arc<dyn KeyExtractor> {
    let mut shared: Arc<dyn KeyExtractor> = Arc::new(key);
    while let Some(inner) = (&*shared as &dyn Any).downcast_ref::<Arc<dyn KeyExtractor>>() {
        shared = Arc::clone(inner);
    }
    shared
}

impl KeyExtractor for Join {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        match (self.first.extract(parts), self.second.extract(parts)) {
            (MaybeFuture::Ready(first), MaybeFuture::Ready(second)) => MaybeFuture::Ready(join(first, second)),
            (first, second) => MaybeFuture::pending(async move {
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
async fn both<T>(mut first: MaybeFuture<T>, mut second: MaybeFuture<T>) -> (T, T) {
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
                Secret { key: first.join(&second), offered }.into()
            }
            _ => Extracted::Missing,
        },
    }
}

/// Identifies clients by the result of a closure over the head of the request.
///
/// The closure returns a [`Key`](crate::Key) or text, an `Option` of one of them (`None` is a
/// [missing](crate::policy::MissingKey) key), or a `Result` of one of these. The error of the `Result` is a response that
/// rejects the request, boxed or not, [`Ambiguous`](super::Ambiguous), or an [`Error`](crate::Error), which is a
/// [failure](crate::OnFailure#keys). The closure is called for each request that the policy applies to, and should
/// not block.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// // `acme.example.com` is the tenant `acme`.
/// let tenant = key::from_fn(|parts| {
///     let host = key::host().name(parts)?;
///     let tenant = host.as_deref().and_then(|host| host.split('.').next());
///     Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
/// });
///
/// let request = http::Request::get("/").header("host", "ACME.example.com:8080");
/// let (parts, ()) = request.body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = tenant.extract(&parts) else { panic!("there is a host") };
/// assert_eq!(key.as_str(), "tenant:acme");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn from_fn<F, R>(find: F) -> F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    find
}
