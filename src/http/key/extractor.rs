//! The trait of key extractors, and its implementations for closures and tuples.
//!
//! A tuple has a key only if every part has a key. If parts are missing, ambiguous, rejected or failed, the result of
//! the tuple is the worst of them: rejected, then failed, then ambiguous, then missing. So no client can evade one part
//! by changing another.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use http::request::Parts;

use super::extracted::{Extracted, Secret};
use crate::core::{Key, MaybeFuture};

/// Extracts the key that identifies the client of a request.
///
/// Closures over `&Parts` are extractors if they return one of the types that [`from_fn`](super::from_fn) lists: a
/// [`Key`], text, a number, an address, or an `Option` or `Result` of one of them. For keys from an asynchronous
/// function, use [`lookup`](super::lookup), which protects the database that the function queries.
///
/// A tuple of two to four extractors, each of them `Clone`, is an extractor. Its key joins the keys of all parts, so
/// each combination of values has its own counter. A request without one of the values has no key. All parts run for
/// each request, and pending parts are awaited concurrently.
///
/// A [`Policy`](crate::Policy) calls [`info`](Self::info) when its key is set and when the policy is added to a layer.
/// It never calls `info` for a request.
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
/// An extractor of your own that knows which keys requests can have:
///
/// ```
/// use http::request::Parts;
/// use tollgate::key::{Extracted, KeyExtractor, KeyInfo};
/// use tollgate::policy::AccessList;
/// use tollgate::store::MaybeFuture;
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
// No implementation is recommended, because the compiler would list types and bounds instead of what users write.
#[diagnostic::on_unimplemented(
    message = "expected a key extractor, found `{Self}`",
    label = "neither an extractor, such as `key::header(\"x-api-key\")`, nor a closure from `&Parts` to a key",
    note = "a closure returns a `Key`, `String`, `&'static str`, `IpAddr`, `i32`, `i64`, `u32` or `u64`, or an `Option` or `Result` of one of them; text of the request has to be owned, as a `String`",
    note = "the error of a `Result` is a `Response<Bytes>`, `key::Ambiguous` or `tollgate::Error`",
    note = "what a closure captures has to be `Send`, `Sync` and `'static`; inside `key::from_fn(…)` the compiler names what is wrong",
    note = "a key that has to be awaited, such as that of an async closure, needs `key::lookup`",
    note = "a tuple has two to four extractors that are `Clone`; more of them are nested: `((a, b), c, d, e)`"
)]
pub trait KeyExtractor: Any + Send + Sync {
    /// Extracts the key, at once or with a future.
    ///
    /// # Cancellation
    ///
    /// A future is polled only if no policy whose key is known at once denies the request. The future may be dropped
    /// before it is ready, even before the first poll. A request waits for the future without a timeout.
    /// [`key::lookup`](super::lookup) has a timeout.
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted>;

    /// Describes the keys before there is a request. By default nothing is known.
    fn info(&self) -> KeyInfo {
        KeyInfo::default()
    }

    /// Returns the key of a request with this value, or `None` if no request can have it. The value is neither escaped
    /// nor hashed.
    ///
    /// [`Policy::key_of`](crate::Policy::key_of) calls this method if the [kind](KeyInfo::kind) is known. The method
    /// also decides which entries an [allow](crate::Policy::allow) list or a [deny](crate::Policy::deny) list may have:
    /// a layer does not build with an entry that is not the value of its own key. By default each value has a key. A
    /// tuple returns `None`, but its parts return keys.
    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let KeyInfo { kind, joined: None, .. } = self.info() else { return None };
        Some(Key::new(&kind?, value))
    }

    /// Returns the client's address, if this extractor has it. By default it has none.
    ///
    /// A policy with a list of addresses compares this address for each request.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }
}

#[diagnostic::do_not_recommend]
impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(self(parts).into())
    }
}

#[diagnostic::do_not_recommend]
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

#[derive(Clone)]
pub(super) struct Joined {
    pub(super) parts: Vec<Arc<dyn KeyExtractor>>,
}

impl Joined {
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
        #[diagnostic::do_not_recommend]
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

pub(crate) fn shared(key: impl KeyExtractor) -> Arc<dyn KeyExtractor> {
    let mut shared: Arc<dyn KeyExtractor> = Arc::new(key);
    while let Some(inner) = (&*shared as &dyn Any).downcast_ref::<Arc<dyn KeyExtractor>>() {
        shared = Arc::clone(inner);
    }
    match shared.info().joined {
        // A wrapper of a tuple may return the same information, so the type is compared.
        Some((tuple, joined)) if tuple == (&*shared as &dyn Any).type_id() => Arc::new(joined),
        _ => shared,
    }
}

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

async fn both<T>(mut first: MaybeFuture<T>, mut second: MaybeFuture<T>) -> (T, T) {
    poll_fn(|cx| if first.is_ready(cx) & second.is_ready(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    (first.wait().await, second.wait().await)
}

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
/// The closure returns a [`Key`](crate::Key), or a value that becomes one:
///
/// | returned | key |
/// | --- | --- |
/// | `String`, `&'static str` | the text; an `Option<&str>` of the request needs `.map(str::to_owned)` |
/// | `i32`, `i64`, `u32`, `u64` | the number's decimal text, so `7` and `"7"` are one client |
/// | [`IpAddr`] | the same as `client_ip` and `peer_ip` by default: IPv4 whole, IPv6 by its /56 prefix |
/// | [`Secret`](super::Secret) | its hash |
///
/// It may also return an `Option` of one of these types (`None` is a [missing](crate::policy::MissingKey) key), a
/// `Result` of one of these types or of such an `Option`, or an [`Extracted`]. The error of the `Result` is one of
/// three: a response that rejects the request (boxed or not), [`Ambiguous`](super::Ambiguous), or an
/// [`Error`](crate::Error), which is a [failure](crate::OnFailure#keys). The closure is called for each request that
/// the policy applies to, and should not block.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
/// use tollgate::Key;
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
///
/// A number that a layer for authentication has inserted:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Policy, Quota};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let by_user = |parts: &Parts| parts.extensions.get::<User>().map(|user| user.id);
/// let policy = Policy::new("user", Quota::per_minute(600)).key(by_user);
/// # let _ = policy;
/// ```
#[must_use]
pub fn from_fn<F, R>(find: F) -> F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    find
}

/// Describes the keys of an extractor before there is a request: [`KeyExtractor::info`] returns it.
///
/// The defaults are safe: the kind is not known, the policy does not apply to requests without a key, and clients choose
/// their keys.
///
/// [`KeyExtractor::info`]: super::KeyExtractor::info
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, KeyExtractor, KeyInfo};
/// use tollgate::policy::MissingKey;
///
/// let info = KeyInfo::new("device").missing_key(MissingKey::Deny);
/// assert_eq!((info.kind.as_deref(), info.unforgeable), (Some("device"), false));
///
/// assert!(key::method().info().unforgeable);
/// assert_eq!((key::bearer(), key::method()).info().kind.as_deref(), Some("bearer+method"));
/// ```
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is known by itself")]
#[must_use]
#[non_exhaustive]
pub struct KeyInfo {
    /// Kind of all keys: their text before the colon, such as `header x-api-key`. `None` if it is not known, as for
    /// closures.
    ///
    /// A [limiter](crate::LiveLayer::limiter) of the layer finds the policies for a key by its kind. A policy with keys
    /// of an unknown kind has to be [named](crate::Limiter::only).
    pub kind: Option<Cow<'static, str>>,
    /// Rule for requests without a key, for policies that do not [set](crate::Policy::missing_key) one.
    pub missing_key: MissingKey,
    /// `true` if no client can get another client's key through the content of a request: the key comes from the
    /// connection or from the server, or does not identify a client.
    ///
    /// A [status service](crate::LiveLayer::status_service) that is open to all shows only policies with such keys.
    /// [`Policy::ban`](crate::Policy::ban) has the rules for bans by such keys and by others.
    pub unforgeable: bool,
    /// `true` if keys contain the [address](super::KeyExtractor::address) of the client.
    ///
    /// If such a key is [ambiguous](super::Extracted::Ambiguous), the requests of one address share a counter, because
    /// the rest of the key cannot change the address. Otherwise all ambiguous requests share one.
    pub address_in_key: bool,
    pub(crate) bannable: Bannable,
    pub(super) joined: Option<(TypeId, Joined)>,
    pub(crate) needs_peer: bool,
    pub(crate) needs_route: bool,
}

impl KeyInfo {
    /// Describes keys of a kind.
    pub fn new(kind: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Some(kind.into()), ..Self::default() }
    }

    /// Sets the rule for requests without a key, instead of [`MissingKey::Skip`].
    pub fn missing_key(self, rule: MissingKey) -> Self {
        Self { missing_key: rule, ..self }
    }

    /// Declares that no client can get the key of another client: see [`unforgeable`](field@Self::unforgeable).
    pub fn unforgeable(self) -> Self {
        let bannable = if self.bannable == Bannable::Claimed { Bannable::Client } else { self.bannable };
        Self { unforgeable: true, bannable, ..self }
    }

    /// Declares that a key does not identify a client, for example a method or a route.
    ///
    /// A policy cannot have a [ban](crate::Ban) by such a key, because the ban would apply to all clients.
    pub fn shared(self) -> Self {
        Self { bannable: Bannable::Shared, ..self }
    }

    /// Declares that keys contain the address: see [`address_in_key`](field@Self::address_in_key).
    pub fn address_in_key(self) -> Self {
        Self { address_in_key: true, ..self }
    }

    pub(super) fn and(self, other: Self) -> Self {
        let kind = self.kind.zip(other.kind).map(|(first, second)| format!("{first}+{second}").into());
        Self {
            kind,
            missing_key: self.missing_key.and(other.missing_key),
            bannable: self.bannable.and(other.bannable),
            joined: None,
            unforgeable: self.unforgeable && other.unforgeable,
            address_in_key: self.address_in_key || other.address_in_key,
            needs_peer: self.needs_peer || other.needs_peer,
            needs_route: self.needs_route || other.needs_route,
        }
    }
}

/// Rule for requests whose key is missing or ambiguous.
///
/// An [ambiguous](super::Extracted::Ambiguous) key is never skipped and never gets a fresh counter. Otherwise a client
/// could escape its limit by sending a header twice. Requests with an ambiguous key are denied, or share one counter of
/// the policy, with the policy's own quota. Requests without a key do not use this counter. If the extractor has the
/// client's address, as a tuple with `client_ip` does, there is one such counter for each address (IPv4) or /56 prefix
/// (IPv6).
///
/// # Examples
///
/// ```
/// use tollgate::policy::MissingKey;
/// use tollgate::{Policy, Quota, key};
///
/// // Requests without an API key are denied with 403.
/// let policy = Policy::new("api", Quota::per_minute(100))
///     .key(key::header("x-api-key"))
///     .missing_key(MissingKey::Deny);
/// # let _ = policy;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policy does not limit requests without a key. Requests with an ambiguous key are counted together.
    #[default]
    Skip,
    /// The request is denied: with 403 if it has no key, with 400 if its key is ambiguous.
    Deny,
    /// Requests without a key share one counter. Requests with an ambiguous key share another counter.
    Share,
}

impl MissingKey {
    /// Returns the stricter rule, because a joined key must not escape a limit that one part alone would not escape.
    fn and(self, other: Self) -> Self {
        [Self::Deny, Self::Share].into_iter().find(|rule| [self, other].contains(rule)).unwrap_or(Self::Skip)
    }
}

/// Clients that a [ban](crate::Ban) by a key affects. A layer does not build with a ban that one client could provoke
/// for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bannable {
    /// Clients that share the address or account.
    Client,
    /// Perhaps others: clients choose the key. A ban needs [verified](crate::Ban::of_verified_keys) keys.
    #[default]
    Claimed,
    /// Perhaps others: the address is in a header that any client may write.
    Spoofable,
    Shared,
}

impl Bannable {
    fn and(self, other: Self) -> Self {
        let of_either = |whom: &Self| [self, other].contains(whom);
        [Self::Spoofable, Self::Client, Self::Claimed].into_iter().find(of_either).unwrap_or(Self::Shared)
    }
}
