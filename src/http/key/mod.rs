//! Who is counted: keys, and what extracts them from a request.
//!
//! An extractor looks at the head of a request and answers with a [`Key`], with "there is none", with
//! "it cannot be told for certain", or with a response that refuses the request. The functions here make
//! the common ones; a closure over `&Parts` makes any other:
//!
//! ```
//! use http::request::Parts;
//! use tollgate::{key, Policy, Quota};
//!
//! // The session is in a type that a layer for authentication puts there.
//! # #[derive(Clone)] struct Session { account: String }
//! let by_account = key::from_fn(|parts| parts.extensions.get::<Session>().map(|session| session.account.clone()));
//! let policy = Policy::new("account", Quota::per_minute(600)).key(by_account);
//! # let _ = policy;
//! ```
//!
//! A closure sees what the client wrote. What the application takes for the same client has to be the same
//! key: [`host`], [`path`] and the like have one form for all spellings, and closures that go on from the
//! host have it from [`Host::name`], as `parts.uri.host()` is `None` on HTTP/1.1.

mod ambiguous;
mod authorization;
mod basic_user;
mod bearer;
#[cfg(feature = "axum")]
mod client_ip;
mod cookie;
mod cookie_pairs;
mod embedded;
mod extension;
mod extracted;
mod extractor;
pub(crate) mod field_value;
#[cfg(feature = "axum")]
mod forwarded;
mod from_fn;
mod global;
mod header;
#[cfg(feature = "axum")]
mod hops;
mod host;
#[cfg(feature = "axum")]
mod ip;
mod join;
mod list_entry;
mod lookup;
mod method;
mod missing;
mod network;
#[cfg(feature = "axum")]
mod node;
mod path;
#[cfg(feature = "axum")]
mod path_param;
#[cfg(feature = "axum")]
mod peer_ip;
mod query;
pub(crate) mod reading;
#[cfg(feature = "axum")]
mod route;
mod secret;
#[cfg(feature = "axum")]
mod template;
#[cfg(feature = "axum")]
mod trust;

pub use crate::core::Key;
use crate::core::Kind;
pub use ambiguous::Ambiguous;
pub use basic_user::{BasicUser, basic_user};
pub use bearer::bearer;
#[cfg(feature = "axum")]
pub use client_ip::{ClientIp, client_ip};
pub use cookie::{Cookie, cookie};
pub(crate) use embedded::{counted, site};
pub use extension::{Extension, extension};
pub use extracted::Extracted;
pub use extractor::{Join, KeyExtractor};
pub use from_fn::from_fn;
pub use global::global;
pub use header::{Header, header};
pub use host::{Host, host};
pub use list_entry::ListEntry;
pub use lookup::{KeyLookup, lookup};
pub use method::method;
pub use missing::MissingKey;
pub(crate) use network::canonical;
pub use path::path;
#[cfg(feature = "axum")]
pub use path_param::{PathParam, path_param};
#[cfg(feature = "axum")]
pub use peer_ip::{PeerIp, peer_ip};
pub use query::{Query, query};
#[cfg(feature = "axum")]
pub use route::route;
pub use secret::Secret;
#[cfg(feature = "axum")]
pub(crate) use template::{is_template, matched, normal as normal_template};
