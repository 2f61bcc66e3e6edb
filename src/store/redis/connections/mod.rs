//! Opening connections by URLs, TLS, credentials, streams, sentinels and pools.
//!
//! A `ConnSource` opens connections that are logged in and checked. Every step has a timeout.
//!
//! ```text
//! ConnSource::take ─▶ a server, or sentinels ─▶ stream ─▶ TLS ─▶ login ─▶ check ─▶ Link
//! ```

mod check;
mod failure;
mod link;
mod source;
#[cfg(feature = "tls")]
mod tls;

pub(super) use failure::{Failure, failed, is_definite, is_missing, is_of_a_replica, is_redirection};
pub use link::Credentials;
pub(super) use link::{Duplex, Link};
#[cfg(feature = "sentinel")]
pub(super) use source::Sentinels;
#[cfg(feature = "cluster")]
pub(super) use source::moved_to;
pub(super) use source::{ConnSource, Connect, Origin, server_at};
#[cfg(feature = "tls")]
pub(super) use tls::Tls;
