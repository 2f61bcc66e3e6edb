//! Where the connections to one server come from: its URL, the sentinels that name it, or the application's pool.
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

use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
#[cfg(feature = "sentinel")]
use deadpool_redis::redis::{Value, cmd, from_redis_value};
use deadpool_redis::{Connection, Pool, PoolError};
#[cfg(feature = "tls")]
use rustls::ClientConfig;
use tokio::time::timeout;

use super::check::check;
use super::failure::not_connected;
use super::link::{Credentials, Dial, Link, Provide, dialed, own_task, tcp};
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

impl Connect {
    /// Opens a connection to a server and logs in, as the closure for credentials says, or else the URL.
    ///
    /// # Errors
    ///
    /// If there are no credentials, or the server cannot be reached or refuses the login. It does not end by itself if
    /// the server never responds: callers bound it.
    async fn open(&self, server: &ConnectionInfo) -> Result<Link, Error> {
        let mut login = server.redis_settings().clone();
        if let Some(provide) = self.credentials.clone() {
            let none = |cause| Error::new(Kind::Connection, "there are no credentials for Redis").with_source(cause);
            let Credentials { user, password } = own_task(move || provide()).await.map_err(none)?;
            login = login.set_username(user).set_password(password);
        }
        let mut link = self.stream(server.addr()).await?;
        link.log_in(&login).await.map_err(not_connected)?;
        Ok(link)
    }

    /// Opens a stream to an address. Nothing is sent on it yet, except by TLS.
    async fn stream(&self, address: &ConnectionAddr) -> Result<Link, Error> {
        match (address, &self.dial) {
            (ConnectionAddr::Tcp(host, port), Some(dial)) => dialed(dial, host, *port).await.map(Link::Other),
            (ConnectionAddr::Tcp(host, port), None) => tcp(host, *port).await.map(Link::Tcp).map_err(not_connected),
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, dial) => {
                let stream = match dial {
                    Some(dial) => dialed(dial, host, *port).await?,
                    None => Box::new(tcp(host, *port).await.map_err(not_connected)?),
                };
                let encrypted = super::tls::encrypt(self.tls.as_ref(), host, stream).await;
                encrypted.map(|stream| Link::Other(Box::new(stream))).map_err(not_connected)
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(not_connected)?;
                Ok(Link::Other(Box::new(stream)))
            }
            (other, _) => Err(not_connected(format!("{other} cannot be connected to from here"))),
        }
    }
}

/// Where connections come from, and how they are opened.
pub(in crate::store::redis) struct ConnSource {
    pub(in crate::store::redis) connect: Connect,
    pub(in crate::store::redis) origin: Origin,
}

/// Where connections come from.
#[allow(clippy::large_enum_variant, reason = "there is one for each server")]
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

impl ConnSource {
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
            let checked = timeout(connect.timeout.saturating_mul(2), check(&mut link, calls)).await.map_err(late)?;
            checked.map_err(|error| if error.is_connection() { not_connected(error) } else { error })?;
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
    async fn find(&self, connect: &Connect) -> Result<Link, Error> {
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

/// Reads a URL: `redis://`, `rediss://` with the feature `tls`, `redis+unix://` on Unix, and the
/// same with `valkey`.
///
/// # Errors
///
/// If it is no such URL, encrypted without the feature, or encrypted without a proof of the
/// server's identity (`#insecure`), or has a parameter that the redis crate passes over: the error is one of the
/// settings. It does not show the URL, which may hold a password.
pub(in crate::store::redis) fn server_at(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| Error::invalid(fault(url)).with_source(error))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = info.addr() {
        return Err(Error::invalid(
            "#insecure is not supported, as it skips the verification of the server: give its root certificate instead",
        ));
    }
    if info.redis_settings().username().is_some() && info.redis_settings().password().is_none() {
        return Err(Error::invalid(
            "a user without a password is not logged in: give user:password@host in the Redis URL",
        ));
    }
    // The redis crate passes over all others: with a `db` that other clients read, two services would share database 0.
    let (known, say): (&[&str], _) = match info.addr() {
        ConnectionAddr::Unix(_) => (&["db", "user", "pass", "protocol"], "there are db, user, pass and protocol"),
        _ => (&["protocol"], "the database is a path, as in redis://host:port/1"),
    };
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let mut names = query.split('&').filter_map(|parameter| parameter.split('=').next());
    if names.any(|name| !name.is_empty() && !known.contains(&name)) {
        return Err(Error::invalid(format!("a parameter of the Redis URL is not known: {say}")));
    }
    Ok(info)
}

/// Returns what is wrong with a URL that the redis crate does not read, and what to give instead.
fn fault(url: &str) -> &'static str {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let encrypted = ["rediss", "valkeys"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if encrypted && !cfg!(feature = "tls") {
        "this Redis URL requires TLS: enable the feature `tls` of tollgate"
    } else {
        "not a valid Redis URL: give redis://[user:password@]host:port[/db], rediss:// for TLS, or \
         redis+unix:///path"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        let error = server_at(url).map(drop).expect_err("it cannot be used");
        assert!(error.is_invalid(), "{error:#}");
        error.to_string()
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_url_that_asks_for_tls_is_refused_without_the_feature_and_told_its_name() {
        for url in ["rediss://127.0.0.1:6379", "REDISS://127.0.0.1", "valkeys://user:secret@host:1/0"] {
            let message = refusal(url);
            assert!(message.contains("feature `tls`") && !message.contains("secret"), "{url}: {message}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_that_asks_for_tls_without_proof_is_refused() {
        let message = refusal("rediss://127.0.0.1:6379/#insecure");
        assert!(message.contains("root certificate"), "{message}");
    }

    #[test]
    fn every_kind_of_url_is_read() {
        let unix = if cfg!(unix) { &["redis+unix:///run/redis.sock", "unix:///a?db=1&user=b&pass=c"][..] } else { &[] };
        let tls = if cfg!(feature = "tls") { &["rediss://host:6380", "valkeys://user:pw@host/1"][..] } else { &[] };
        for url in ["redis://host", "valkey://:pw@[::1]:1/2"].iter().chain(unix).chain(tls) {
            assert!(server_at(url).is_ok(), "{url}");
        }
        assert!(refusal("http://host").contains("redis://"));
    }
}
