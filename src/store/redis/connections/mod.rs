//! Where connections come from: URLs, TLS, credentials, streams, sentinels and pools.
//!
//! Settings come in; a `Source` goes out, which opens connections, logged in and to a server that is a Redis. The redis
//! crate logs in; then the stream is taken back from it. Every step is bounded in time.
//!
//! ```text
//! Source::take ─▶ a server, or sentinels ─▶ stream ─▶ TLS ─▶ login ─▶ check ─▶ Link
//! ```

mod check;
mod credentials;
mod dial;
mod failure;
mod link;
mod own_task;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod source;
mod stream;
mod tls;
mod url;

pub use credentials::Credentials;
pub(super) use credentials::Provider;
pub(super) use dial::{Dialer, Duplex};
pub(super) use failure::{Failure, failed, is_definite, is_missing, is_of_a_replica, is_redirection};
pub(super) use link::Link;
#[cfg(feature = "cluster")]
pub(super) use server::Server;
pub(super) use source::{Connect, Source};
pub(super) use tls::Tls;
pub(super) use url::server as server_at;
