//! The trait of key extractors, its implementation for closures, and for tuples, whose keys are joined.
//!
//! A tuple has a key only if all parts have one, and is certain only if all are. Where a part is missing, ambiguous,
//! rejected or failed, the joined key is the worst of them: rejected, then failed, ambiguous, missing. So no client evades
//! one part by changing another.

use std::any::{Any, TypeId};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use http::request::Parts;

use super::extracted::{Extracted, Secret};
use super::info::KeyInfo;
use crate::core::{Key, MaybeFuture};

/// Extracts the key that identifies the client of a request.
///
/// Closures over `&Parts` are extractors if they return a [`Key`], a `String` or a `&'static str`, an `Option` of one
/// of them, a `Result` as [`from_fn`](super::from_fn) describes it, or an [`Extracted`]. For keys that have to be
/// waited for there is [`lookup`](super::lookup), which protects the database it queries.
///
/// A tuple of two to four extractors is an extractor: its key is that of all parts together, so each combination of values
/// has a counter of its own, and a request without one of them has no key. The parts run for each request, and what is not
/// ready is waited for at the same time.
///
/// A [`Policy`](crate::Policy) calls [`info`](Self::info) when its key is set and when it is given to a layer, and never
/// for a request.
///
/// # Examples
///
/// Requests are counted by tenant and method:
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let by_tenant_and_method = (key::header("x-tenant").plain(), key::method());
///
/// let (parts, ()) = http::Request::get("/").header("x-tenant", "acme").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = by_tenant_and_method.extract(&parts) else { panic!("it has both") };
/// assert_eq!(key.as_str(), "header x-tenant+method:acme|GET");
/// # Ok::<(), http::Error>(())
/// ```
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
    /// with an entry that is not the value of its own key. By default each value is; a tuple has none, but its parts have.
    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let KeyInfo { kind, joined: None, .. } = self.info() else { return None };
        Some(Key::new(&kind?, value))
    }

    /// Returns the client's address, if this extractor has it; by default it has none.
    ///
    /// Lists of addresses compare it, for each request of a policy that has one.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
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
}

/// The extractors of a tuple, each of which can be cloned.
#[derive(Clone)]
pub(super) struct Joined {
    pub(super) parts: Vec<Arc<dyn KeyExtractor>>,
}

impl Joined {
    /// Returns what is known of the keys of a tuple.
    fn info_of<Tuple: Any>(self) -> KeyInfo {
        let info = self.parts.iter().map(KeyExtractor::info).reduce(KeyInfo::and).expect("a tuple has parts");
        KeyInfo { joined: Some((TypeId::of::<Tuple>(), self)), ..info }
    }
}

impl KeyExtractor for Joined {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        join_all(self.parts.iter().map(|part| part.extract(parts)))
    }

    fn info(&self) -> KeyInfo {
        self.clone().info_of::<Self>()
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.parts.iter().find_map(|part| part.address(parts))
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").finish_non_exhaustive()
    }
}

macro_rules! tuple {
    ($($part:ident.$index:tt),+) => {
        impl<$($part: KeyExtractor + Clone),+> KeyExtractor for ($($part),+) {
            fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
                join_all([$(self.$index.extract(parts)),+].into_iter())
            }
            fn info(&self) -> KeyInfo {
                Joined { parts: vec![$(shared(self.$index.clone())),+] }.info_of::<Self>()
            }
            fn address(&self, parts: &Parts) -> Option<IpAddr> {
                None$(.or_else(|| self.$index.address(parts)))+
            }
        }
    };
}

tuple!(A.0, B.1);
tuple!(A.0, B.1, C.2);
tuple!(A.0, B.1, C.2, D.3);

/// Returns the extractor that a policy keeps: of a tuple its parts, and itself if it is shared, however often, so that its
/// own type is found in it.
pub(crate) fn shared(key: impl KeyExtractor) -> Arc<dyn KeyExtractor> {
    let mut shared: Arc<dyn KeyExtractor> = Arc::new(key);
    while let Some(inner) = (&*shared as &dyn Any).downcast_ref::<Arc<dyn KeyExtractor>>() {
        shared = Arc::clone(inner);
    }
    match shared.info().joined {
        // An extractor around a tuple may return the same information.
        Some((tuple, joined)) if tuple == (&*shared as &dyn Any).type_id() => Arc::new(joined),
        _ => shared,
    }
}

/// Joins the keys of several extractors.
#[cfg(feature = "config")]
pub(crate) fn joined(parts: Vec<Arc<dyn KeyExtractor>>) -> Arc<dyn KeyExtractor> {
    Arc::new(Joined { parts })
}

/// Joins what extractors return. What is not ready is waited for at the same time.
fn join_all(found: impl Iterator<Item = MaybeFuture<Extracted>>) -> MaybeFuture<Extracted> {
    let joined = found.reduce(|first, second| match (first, second) {
        (MaybeFuture::Ready(first), MaybeFuture::Ready(second)) => MaybeFuture::Ready(join(first, second)),
        (first, second) => MaybeFuture::pending(async move {
            let (first, second) = both(first, second).await;
            join(first, second)
        }),
    });
    joined.expect("a tuple has parts")
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
///     let host = key::host_name(parts)?;
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
