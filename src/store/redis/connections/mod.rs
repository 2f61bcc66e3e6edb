//! Where connections come from: URLs, TLS, credentials, streams, sentinels and pools.
//!
//! Settings come in; a `Source` goes out, which opens connections, logged in and to a server that is a Redis. Every step
//! is bounded in time.
//!
//! ```text
//! Source::take ─▶ a server, or sentinels ─▶ stream ─▶ TLS ─▶ login ─▶ check ─▶ Link
//! ```

mod check;
mod closures;
mod failure;
mod link;
mod source;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use closures::Credentials;
pub(super) use closures::Duplex;
pub(super) use failure::{Failure, failed, is_definite, is_missing, is_of_a_replica, is_redirection};
pub(super) use link::Link;
#[cfg(feature = "sentinel")]
pub(super) use source::Sentinels;
#[cfg(feature = "cluster")]
pub(super) use source::moved_to;
pub(super) use source::{Connect, Origin, Source};
#[cfg(feature = "tls")]
pub(super) use tls::Tls;
pub(super) use url::server as server_at;
