//! Where connections come from: URLs, TLS, credentials, whoever opens a stream, sentinels and pools.
//!
//! A connector stands for a server, or for whichever one sentinels name, and opens a connection to it. What comes out
//! is a [`Link`]: its two halves, apart, so that who asks is not who sends and receives. What is asked on it is the
//! caller's, but for what shows that the server is a Redis, and for loading what is called.

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
