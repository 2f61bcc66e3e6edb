//! Where the connections to one server come from: its address, the sentinels that name it, or the application's pool.
//!
//! | what | at most |
//! | --- | --- |
//! | connecting to a server | the connect timeout |
//! | the same by sentinels | 8 connect timeouts |
//! | a sentinel naming the primary, the primary saying that it is one | 1 connect timeout each |
//! | the check that the server is a Redis | 2 connect timeouts |

#[cfg(feature = "tls")]
use std::sync::Arc;
#[cfg(feature = "sentinel")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(any(feature = "cluster", feature = "sentinel"))]
use deadpool_redis::redis::ConnectionAddr;
use deadpool_redis::redis::ConnectionInfo;
#[cfg(feature = "sentinel")]
use deadpool_redis::redis::{Value, cmd, from_redis_value};
use deadpool_redis::{Connection, Pool, PoolError};
#[cfg(feature = "tls")]
use rustls::ClientConfig;
use tokio::time::timeout;

use super::check::check;
use super::closures::{Credentials, Dial, Provide, own_task};
use super::failure::not_connected;
use super::link::Link;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::Calls;

/// How servers are connected to: the settings of a store.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Connect {
    /// How long connecting to a server may take.
    pub(in crate::store::redis) timeout: Duration,
    /// How connections are encrypted, where the address says that they are.
    #[cfg(feature = "tls")]
    pub(in crate::store::redis) tls: Option<Arc<ClientConfig>>,
    /// What returns user and password, if not the URL.
    pub(in crate::store::redis) credentials: Option<Provide>,
    /// What opens streams, if not this crate.
    pub(in crate::store::redis) dial: Option<Dial>,
    /// How decisions will be called for; `None` for a store that calls no Lua, whose servers are not checked.
    pub(in crate::store::redis) calls: Option<Calls>,
}

/// Where connections come from, and how they are opened.
pub(in crate::store::redis) struct Source {
    pub(in crate::store::redis) connect: Connect,
    pub(in crate::store::redis) origin: Origin,
}

/// Where connections come from.
pub(in crate::store::redis) enum Origin {
    Server(ConnectionInfo),
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
    Pool(Pool),
}

/// Sentinels, and the name by which they know the primary.
///
/// Nothing is cached but which sentinel named it last: each new connection follows the sentinels anew. So a failover is
/// followed as soon as the connection to the old primary is given up.
#[cfg(feature = "sentinel")]
pub(in crate::store::redis) struct Sentinels {
    /// The sentinels, in the order of their URLs, which say who logs in there.
    pub(in crate::store::redis) known: Vec<ConnectionInfo>,
    /// The name of the primary, as in `sentinel monitor`.
    pub(in crate::store::redis) name: String,
    /// How the primary is connected to; its address is replaced by the one that a sentinel names.
    pub(in crate::store::redis) primary: ConnectionInfo,
    /// The index of the sentinel that is called first: the one that named the primary last.
    pub(in crate::store::redis) first: AtomicUsize,
}

impl Connect {
    /// Opens a connection to a server and logs in, as the closure for credentials says, or else the URL.
    ///
    /// # Errors
    ///
    /// If there are no credentials, or the server cannot be reached or refuses the login. It does not end by itself if
    /// the server never responds: callers bound it.
    pub(super) async fn open(&self, server: &ConnectionInfo) -> Result<Link, Error> {
        let mut login = server.redis_settings().clone();
        if let Some(provide) = self.credentials.clone() {
            let none = || Error::new(Kind::Connection, "there are no credentials for Redis");
            let provided = own_task(move || provide()).await.map_err(|error| none().with_source(error))?;
            let Credentials { user, password } = provided.map_err(|error| none().with_source(error))?;
            login = login.set_username(user).set_password(password);
        }
        let mut link = Link::open(server.addr(), self).await?;
        link.log_in(&login).await.map_err(not_connected)?;
        Ok(link)
    }
}

impl Source {
    /// Opens a connection, or takes one of the application's pool for good, to a server that has shown that its Lua
    /// counts as that of Redis.
    ///
    /// # Errors
    ///
    /// If there is no connection in time, the server cannot be reached or refuses the login, or is no Redis.
    pub(in crate::store::redis) async fn take(&self) -> Result<Link, Error> {
        let late = |late| {
            let text =
                "a new connection to Redis had no reply in time: if the server is there, only one side may use TLS";
            Error::new(Kind::Timeout, text).with_source(late)
        };
        let connect = &self.connect;
        let opened = match &self.origin {
            Origin::Server(server) => timeout(connect.timeout, connect.open(server)).await,
            // Some of them may not respond.
            #[cfg(feature = "sentinel")]
            Origin::Sentinels(sentinels) => timeout(connect.timeout.saturating_mul(8), sentinels.find(connect)).await,
            // It has timeouts of its own.
            Origin::Pool(pool) => {
                Ok(pool.get().await.map(|taken| Link::Pool(Connection::take(taken))).map_err(refused))
            }
        };
        let mut link = opened.map_err(late)??;
        if let Some(calls) = connect.calls {
            timeout(connect.timeout.saturating_mul(2), check(&mut link, calls)).await.map_err(late)??;
        }
        Ok(link)
    }
}

#[cfg(feature = "sentinel")]
impl Sentinels {
    /// Calls one sentinel after the other, in a circle from the last successful one, until one
    /// names a server whose role is primary. Each is called once.
    ///
    /// # Errors
    ///
    /// The error of the last one, if none does.
    pub(super) async fn find(&self, connect: &Connect) -> Result<Link, Error> {
        let (count, first) = (self.known.len(), self.first.load(Ordering::Relaxed));
        let mut failure = not_connected("there is no sentinel to call");
        for index in (0..count).map(|step| (first + step) % count) {
            match self.named_by(&self.known[index], connect).await {
                Ok(link) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Connects to the primary that one sentinel names.
    async fn named_by(&self, sentinel: &ConnectionInfo, connect: &Connect) -> Result<Link, Error> {
        let late = |who| {
            let text = format!("{who} did not reply within {:?}", connect.timeout);
            move |late| Error::new(Kind::Timeout, text).with_source(late)
        };
        let named = timeout(connect.timeout, self.primary_address(sentinel, connect)).await;
        let (host, port) = named.map_err(late("the sentinel"))??;
        let primary = moved_to(&self.primary, host, port);
        timeout(connect.timeout, open_primary(&primary, connect)).await.map_err(late("the primary"))?
    }

    /// Returns the host and the port that a sentinel names, by `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    async fn primary_address(&self, sentinel: &ConnectionInfo, connect: &Connect) -> Result<(String, u16), Error> {
        // The closure's credentials are for the primary.
        let connect = Connect { credentials: None, ..connect.clone() };
        let mut link = connect.open(sentinel).await?;
        let named = link.ask(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name)).await;
        let named: Option<(String, u16)> = from_redis_value(named.map_err(not_connected)?).map_err(not_connected)?;
        let unknown = || format!("the sentinel at {} knows no primary by the name {:?}", sentinel.addr(), self.name);
        named.ok_or_else(|| not_connected(unknown()))
    }
}

/// Returns the same server but for its host and port. A server on a Unix socket becomes one on TCP.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(in crate::store::redis) fn moved_to(server: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match server.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    server.clone().set_addr(address)
}

/// Connects to the server that a sentinel named, if `ROLE` returns that it is a primary: after a
/// failover a sentinel may still name the old one, which is a replica by then.
#[cfg(feature = "sentinel")]
async fn open_primary(primary: &ConnectionInfo, connect: &Connect) -> Result<Link, Error> {
    let mut link = connect.open(primary).await?;
    let role: Vec<Value> =
        from_redis_value(link.ask(&cmd("ROLE")).await.map_err(not_connected)?).map_err(not_connected)?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(link),
        _ => Err(not_connected(format!("{} was named as the primary, but is not one", primary.addr()))),
    }
}

/// Returns the error of a pool of the application's that has no connection.
fn refused(error: PoolError) -> Error {
    match error {
        PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
        error => not_connected(error),
    }
}
