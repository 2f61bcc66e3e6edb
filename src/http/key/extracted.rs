//! Results of extractors, and the types that closures may return in their place.
//!
//! No conversion into [`Extracted`] turns an error or an ambiguous request into a missing key, because most policies
//! would then skip the request.

use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use http::Response;

use super::ip::{DEFAULT_V6_PREFIX, ip_key};
use crate::core::{Error, Key, KeyKind};
use crate::limiter::lookup::RawValues;

/// Result of an extractor: a key, or why there is none.
///
/// Closures rarely name this type, because their results are converted: see [`from_fn`](super::from_fn).
///
/// # Examples
///
/// ```
/// use tollgate::key::{Ambiguous, Extracted};
/// use tollgate::Key;
///
/// assert!(matches!(Extracted::from(Key::new("user", "ada")), Extracted::Key(key) if key.as_str() == "user:ada"));
/// assert!(matches!(Extracted::from("all"), Extracted::Key(key) if key.as_str() == "key:all"));
/// assert!(matches!(Extracted::from(7_u64), Extracted::Key(key) if key.as_str() == "key:7"));
/// assert!(matches!(Extracted::from(None::<Key>), Extracted::Missing));
/// assert!(matches!(Extracted::from(Err::<Key, _>(Ambiguous)), Extracted::Ambiguous));
/// ```
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Extracted {
    /// Key that identifies the client.
    Key(Key),
    /// Key that identifies the client by the hash of a value, together with this value.
    Secret(Box<Secret>),
    /// The request has no key: the policy's [`MissingKey`](crate::policy::MissingKey) rule decides.
    Missing,
    /// The request names several clients, or does not clearly name one, for example by a repeated header with different
    /// values.
    ///
    /// The key is neither known nor missing: the policy's [`MissingKey`](crate::policy::MissingKey) rule decides
    /// whether such requests are denied or share one counter.
    Ambiguous,
    /// The request is denied with this response, and the inner service is not called.
    ///
    /// A gRPC call is denied with the `grpc-status` of the response, or else with the `grpc-status` that is closest to
    /// its HTTP status. The body of the response is not sent.
    Rejected(Box<Response<Bytes>>),
    /// The extractor failed, so the key is not known. [`OnFailure`](crate::OnFailure#keys) decides.
    Failed(Box<Error>),
}

impl Extracted {
    pub(crate) fn into_key(self) -> Result<(Key, RawValues), Self> {
        match self {
            Extracted::Key(key) => Ok((key, RawValues::default())),
            Extracted::Secret(secret) => Ok((secret.key, secret.offered)),
            other => Err(other),
        }
    }
}

/// Error of a closure for a request that names several clients, or does not clearly name one.
///
/// This error becomes [`Extracted::Ambiguous`], which documents what happens to the request.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Ambiguous, Extracted};
///
/// // An account that the path and a header may name: both have to name the same one.
/// let account = key::from_fn(|parts| {
///     let by_path = parts.uri.path().strip_prefix("/accounts/").map(str::to_owned);
///     let by_header = parts.headers.get("x-account").and_then(|id| id.to_str().ok()).map(str::to_owned);
///     match (by_path, by_header) {
///         (Some(one), Some(other)) if one != other => Err(Ambiguous),
///         (one, other) => Ok(one.or(other)),
///     }
/// });
///
/// let request = http::Request::get("/accounts/7").header("x-account", "8");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert_eq!(account(&parts), Err(Ambiguous));
/// assert!(matches!(Extracted::from(account(&parts)), Extracted::Ambiguous));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ambiguous;

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request has several values of the key")
    }
}

impl StdError for Ambiguous {}

static KIND: KeyKind = KeyKind::fixed("key:");

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Extracted::Key(key)
    }
}

impl From<String> for Extracted {
    fn from(text: String) -> Self {
        text_key(text)
    }
}

impl From<&'static str> for Extracted {
    fn from(text: &'static str) -> Self {
        text_key(text)
    }
}

macro_rules! number {
    ($($number:ty),+) => {$(
        impl From<$number> for Extracted {
            fn from(number: $number) -> Self {
                number.to_string().into()
            }
        }
    )+};
}

number!(i32, i64, u32, u64);

impl From<IpAddr> for Extracted {
    fn from(address: IpAddr) -> Self {
        Extracted::Key(ip_key(address, DEFAULT_V6_PREFIX))
    }
}

fn text_key(text: impl AsRef<[u8]>) -> Extracted {
    let key = KIND.key(text.as_ref());
    if Key::is_hash(key.value()) { Secret::from_parts(key, text).into() } else { Extracted::Key(key) }
}

impl<T: Into<Extracted>> From<Option<T>> for Extracted {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Extracted::Missing, Into::into)
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

impl<T: Into<Extracted>> From<Result<T, Ambiguous>> for Extracted {
    fn from(found: Result<T, Ambiguous>) -> Self {
        found.map_or(Extracted::Ambiguous, Into::into)
    }
}

impl From<Secret> for Extracted {
    fn from(secret: Secret) -> Self {
        Extracted::Secret(Box::new(secret))
    }
}

/// Key that holds the hash of a value, together with the value itself for lookups.
///
/// Closures that extract a secret return this instead of [`Key::hashed`], so that a
/// [`TierLookup`](crate::policy::TierLookup) or a [`key::lookup`](super::lookup()) receives the value. No store, log,
/// metric or `Debug` output contains the value.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Secret};
///
/// let session = key::from_fn(|parts| parts.headers.get("x-session").map(|id| Secret::new("session", id)));
/// # let _ = session;
///
/// let secret = Secret::new("session", "s3cret");
/// assert!(secret.key().as_str().starts_with("session:#"));
/// assert!(!format!("{secret:?}").contains("s3cret"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Secret {
    pub(crate) key: Key,
    /// The value, for lookups only. It is not in the key, because keys go to stores, logs and metrics.
    pub(crate) offered: RawValues,
}

impl Secret {
    /// Creates the same key as [`Key::hashed`], and keeps the value.
    pub fn new(kind: &str, value: impl AsRef<[u8]>) -> Self {
        Self::from_parts(Key::hashed(kind, &value), value)
    }

    fn from_parts(key: Key, value: impl AsRef<[u8]>) -> Self {
        let mut offered = RawValues::default();
        offered.push(value);
        Self { key, offered }
    }

    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("key", &self.key).finish_non_exhaustive()
    }
}
