//! Keys that no client can choose: one key for all requests, the method, and extensions of the request.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::extracted::Extracted;
use super::{KeyExtractor, KeyInfo};
use crate::core::{Key, MaybeFuture};

const GLOBAL: Key = Key::fixed("global:");

#[derive(Clone, Copy, Debug)]
struct Global;

/// Counts all requests together, in one counter.
///
/// Policies have this key by default. A layer does not build with a list of values for this key, because the list would
/// match all clients.
///
/// # Examples
///
/// ```
/// use tollgate::{Policy, Quota, key};
///
/// // No more than 5,000 requests per second, from all clients together.
/// let policy = Policy::new("capacity", Quota::per_second(5_000)).key(key::global());
/// # let _ = policy;
/// ```
#[must_use]
pub fn global() -> impl KeyExtractor + Copy + fmt::Debug {
    Global
}

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Key(GLOBAL))
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("global").shared().unforgeable()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        value.is_empty().then_some(GLOBAL)
    }
}

const METHOD: &str = "method";

/// Shared by all other methods, because made-up methods must not start fresh counters.
const OTHER: &str = "<other>";

/// RFC 9110, and PATCH of RFC 5789.
pub(crate) const STANDARD_METHODS: [http::Method; 9] = [
    http::Method::GET,
    http::Method::HEAD,
    http::Method::POST,
    http::Method::PUT,
    http::Method::PATCH,
    http::Method::DELETE,
    http::Method::OPTIONS,
    http::Method::CONNECT,
    http::Method::TRACE,
];

#[derive(Clone, Copy, Debug)]
struct Method;

/// Counts requests by their method, such as `GET`.
///
/// HEAD counts as GET, because it runs the same handler. Methods outside of RFC 9110, other than PATCH, share one
/// counter. The method is mostly useful as a part of a [tuple](KeyExtractor).
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let (parts, ()) = http::Request::head("/").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = key::method().extract(&parts) else { panic!("there is a method") };
/// assert_eq!(key.as_str(), "method:GET");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn method() -> impl KeyExtractor + Copy + fmt::Debug {
    Method
}

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Key(method_key(&parts.method)))
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new(METHOD).shared().unforgeable()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        match http::Method::from_bytes(value) {
            Ok(method) => Some(method_key(&method)),
            Err(_) => (value == OTHER.as_bytes()).then(|| Key::new(METHOD, OTHER)),
        }
    }
}

fn method_key(method: &http::Method) -> Key {
    let method = if method == http::Method::HEAD { &http::Method::GET } else { method };
    Key::new(METHOD, if STANDARD_METHODS.contains(method) { method.as_str() } else { OTHER })
}

#[derive(Clone)]
struct Extension(Arc<dyn Fn(&Parts) -> Extracted + Send + Sync>);

/// Identifies clients by a request extension, such as the user that a layer for authentication has found.
///
/// The closure may return the same types as a closure of [`from_fn`](super::from_fn). A request without the extension
/// has no key. The layer that inserts the extension has to be outside of the rate limit.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
/// use tollgate::Key;
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let by_user = key::extension(|user: &User| Key::new("user", user.id.to_string()));
///
/// let (mut parts, ()) = http::Request::get("/").body(())?.into_parts();
/// assert!(matches!(by_user.extract(&parts), MaybeFuture::Ready(Extracted::Missing)));
/// parts.extensions.insert(User { id: 7 });
/// assert!(matches!(by_user.extract(&parts), MaybeFuture::Ready(Extracted::Key(key)) if key.as_str() == "user:7"));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn extension<T, R>(find: impl Fn(&T) -> R + Send + Sync + 'static) -> impl KeyExtractor + Clone + fmt::Debug
where
    T: Send + Sync + 'static,
    R: Into<Extracted>,
{
    Extension(Arc::new(move |parts| parts.extensions.get().map(&find).into()))
}

impl KeyExtractor for Extension {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready((self.0)(parts))
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::default().unforgeable()
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").finish_non_exhaustive()
    }
}
