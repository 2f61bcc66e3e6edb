//! Keys, and the extractors that extract them from requests.
//!
//! A policy counts requests by [`Key`](crate::Key): requests with one key share a counter. A [`KeyExtractor`] receives
//! the head of a request and returns an [`Extracted`]: the key, that it is missing or ambiguous, or a response that
//! rejects the request. The policy's [`MissingKey`](crate::policy::MissingKey) rule decides what happens without a key.
//!
//! | key | extractor | a client can choose it |
//! | --- | --- | --- |
//! | the client's address | `client_ip`, `peer_ip` (feature `axum` or `tonic`) | no |
//! | an identity that the application knows | [`extension`], `lookup` (feature `lookup`) | no, if the application verifies it |
//! | credentials | [`bearer`], [`basic_user`], [`cookie`], [`header`] | yes, unless they are verified |
//! | a part of the URI | [`path`], [`query`], [`host`], `path_param` (feature `axum`) | yes |
//! | the handler | `route` (feature `axum`), [`method`] | only one that exists |
//! | all requests | [`global`] | no |
//!
//! The body is not part of the head. If the body has the key, such as the account of a login, let a middleware outside
//! of the layer read the key and insert it into the request's extensions. [`extension`] then counts by this key.
//! [`Policy::ban_failures`](crate::Policy::ban_failures) has an example. Alternatively, the handler checks such a
//! policy itself, by [`RateLimitHandle::check`](crate::RateLimitHandle::check).
//!
//! A client that can choose the key can start a fresh counter with each request, so add a policy by address.
//!
//! A tuple of extractors, such as `(key::client_ip(), key::route())`, joins their keys. A closure over `&Parts` makes
//! any other extractor. The closure returns a key, text, a number, an address, or an `Option` or `Result` of one of
//! them: [`from_fn`] has the list.
//!
//! ```
//! use http::request::Parts;
//! use tollgate::{Policy, Quota, key};
//!
//! // A layer for authentication has inserted the session.
//! # #[derive(Clone)] struct Session { account: String }
//! let by_account = key::from_fn(|parts| parts.extensions.get::<Session>().map(|session| session.account.clone()));
//! let policy = Policy::new("account", Quota::per_minute(600)).key(by_account);
//! assert_eq!(policy.name(), "account");
//! ```
//!
//! A closure sees the request as the client wrote it, and must return one key for all spellings that the application
//! treats as one client. [`host`], [`path`] and the other extractors here do so. Closures that derive a key from the
//! host should use [`host_name`], because `parts.uri.host()` is `None` on HTTP/1.1.

mod authorization;
#[cfg(feature = "axum")]
mod bound;
#[cfg(feature = "axum")]
mod client_ip;
mod cookie;
mod extracted;
pub(super) mod extractor;
mod ip;
#[cfg(feature = "lookup")]
mod lookup;
mod parts;
#[cfg(feature = "axum")]
mod proxies;
pub(crate) mod reading;
#[cfg(feature = "axum")]
mod route;
mod template;
mod unforgeable;
mod uri;
mod value;

#[cfg(feature = "lookup")]
pub use crate::limiter::lookup::Lookup;
pub use authorization::bearer;
#[cfg(feature = "axum")]
pub(crate) use bound::bound;
#[cfg(feature = "axum")]
pub use client_ip::{ClientIp, PeerIp, client_ip, peer_ip};
pub use extracted::{Ambiguous, Extracted, Secret};
pub(crate) use extractor::Bannable;
pub use extractor::KeyInfo;
pub(crate) use extractor::shared;
pub use extractor::{KeyExtractor, from_fn};
pub(crate) use ip::{DEFAULT_V6_PREFIX, canonical, counted, ip_key, parse_net, peer};
#[cfg(feature = "lookup")]
pub use lookup::{KeyLookup, lookup};
pub(crate) use parts::{key_of, offer_raw_values, parts};
#[cfg(feature = "axum")]
pub use route::route;
pub(crate) use template::{is_template, matched, normal as normal_template};
pub(crate) use unforgeable::STANDARD_METHODS;
pub use unforgeable::{extension, global, method};
pub use uri::{host, host_name, path};
#[cfg(feature = "axum")]
pub use value::path_param;
pub use value::{ValueKey, basic_user, cookie, header, query, try_header};
