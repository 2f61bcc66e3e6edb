//! Where connections come from: URLs, TLS, credentials, streams, sentinels and pools.
//!
//! Settings come in; a `Source` goes out, from which a lane takes an open connection when it needs
//! one. A connector stands for a server, or for whichever one sentinels name, and opens a
//! connection to it. What it opens is a [`Link`]: a handle with which calls are made, and the
//! driver that sends and receives. They are apart, so that a lane can poll the driver together with
//! its queue, and callers have no part in sending and receiving.
//!
//! ```text
//! Source::take ─▶ pool ─▶ connector (a server, or sentinels) ─▶ stream ─▶ TLS ─▶ login ─▶ Link ─▶ check
//! ```
//!
//! Which calls are made is for `batch/` and `cluster/`, but for the one that shows that the server
//! is a Redis, and for loading scripts. A connection is never returned to its pool: it is used
//! until it ends, and its place is free as soon as its `Room` is dropped; but for one of the
//! application's own pool, which goes back there. Every step is bounded in
//! time.

mod check;
mod credentials;
mod dial;
mod failure;
mod link;
mod own_task;
mod pool;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod source;
mod stream;
mod tls;
mod url;

pub use credentials::Credentials;
pub(super) use credentials::Provider;
pub(super) use dial::Dialer;
pub(super) use failure::{Failure, failed, is_cut, is_lost, is_of_the_connection, is_redirection};
pub(super) use link::{Driver, Link, Room};
pub(super) use own_task::OwnTasks;
pub(super) use pool::{CHECKING, Pools};
pub(super) use scripts::{call, load, load_all};
#[cfg(feature = "cluster")]
pub(super) use server::Server;
pub(super) use source::Source;
pub(super) use tls::Tls;
pub(super) use url::server as server_at;
