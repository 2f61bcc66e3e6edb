//! Who is counted: keys, and what extracts them from a request.
//!
//! An extractor looks at the head of a request and answers with a [`Key`], with "there is none", or
//! with a response that refuses the request. The functions here make the common ones; a closure
//! over `&Parts` makes any other:
//!
//! ```
//! use http::request::Parts;
//! use tollgate::{key, Policy, Quota};
//!
//! let by_tenant = key::from_fn(|parts| parts.uri.host().map(str::to_owned));
//! let policy = Policy::new("tenant", Quota::per_minute(600)).key(by_tenant);
//! # let _ = policy;
//! ```

mod extractor;
mod from_fn;
mod global;
mod header;
#[cfg(feature = "axum")]
mod ip;
mod join;
mod path;
#[cfg(feature = "axum")]
mod peer_ip;
#[cfg(feature = "axum")]
mod route;
mod text;

pub use extractor::{Extracted, KeyExtractor};
pub use from_fn::{FromFn, from_fn};
pub use global::{Global, global};
pub use header::{Header, header};
pub use join::Join;
pub use path::{Path, path};
#[cfg(feature = "axum")]
pub use peer_ip::{PeerIp, peer_ip};
#[cfg(feature = "axum")]
pub use route::{Route, route};
pub use text::Key;
