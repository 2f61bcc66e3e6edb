//! Sources of connections to a server: a URL, sentinels, or the application's pool.
//!
//! | step | timeout |
//! | --- | --- |
//! | connecting to a server | the connect timeout |
//! | connecting by sentinels | 8 connect timeouts |
//! | a sentinel naming the primary, the primary confirming its role | 1 connect timeout each |
//! | the check of the server's Lua | 2 connect timeouts |

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
use super::link::{Cause, Credentials, Dial, Link, Provide, dialed, own_task, tcp};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::Calls;

/// Longer than the pipeline waits for any reply.
const UNBOUNDED: Duration = Duration::from_secs(86_400 * 365);

#[derive(Clone, Default)]
pub(in crate::store::redis) struct Connect {
    pub(in crate::store::redis) timeout: Duration,
    #[cfg(feature = "tls")]
    pub(in crate::store::redis) tls: Option<Arc<ClientConfig>>,
    pub(in crate::store::redis) credentials: Option<Provide>,
    pub(in crate::store::redis) dial: Option<Dial>,
    /// `None` for a store that calls no Lua, whose servers are not checked.
    pub(in crate::store::redis) calls: Option<Calls>,
    pub(in crate::store::redis) prefix: String,
}

impl Connect {
    /// Callers bound it: it may wait forever for a server that never responds.
    async fn open(&self, server: &ConnectionInfo) -> Result<Link, Error> {
        let mut login = server.redis_settings().clone();
        if let Some(provide) = self.credentials.clone() {
            let none = |cause| Error::new(Kind::Connection, "there are no credentials for Redis").with_source(cause);
            let Credentials { user, password } = own_task(move || provide()).await.map_err(none)?;
            login = login.set_username(user).set_password(password);
        }
        let at = |cause: Cause| {
            let text = format!("cannot connect to Redis at {}", server.addr());
            Error::new(Kind::Connection, text).with_source(cause)
        };
        let mut link = self.stream(server.addr()).await.map_err(at)?;
        link.log_in(&login).await.map_err(|error| at(error.into()))?;
        Ok(link)
    }

    async fn stream(&self, address: &ConnectionAddr) -> Result<Link, Cause> {
        match (address, &self.dial) {
            (ConnectionAddr::Tcp(host, port), Some(dial)) => dialed(dial, host, *port).await.map(Link::Other),
            (ConnectionAddr::Tcp(host, port), None) => Ok(Link::Tcp(tcp(host, *port).await?)),
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, dial) => {
                let stream = match dial {
                    Some(dial) => dialed(dial, host, *port).await?,
                    None => Box::new(tcp(host, *port).await?),
                };
                Ok(Link::Other(Box::new(super::tls::encrypt(self.tls.as_ref(), host, stream).await?)))
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => Ok(Link::Other(Box::new(tokio::net::UnixStream::connect(path).await?))),
            (other, _) => Err(format!("{other} cannot be connected to from here").into()),
        }
    }
}

pub(in crate::store::redis) struct ConnSource {
    pub(in crate::store::redis) connect: Connect,
    pub(in crate::store::redis) origin: Origin,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each server")]
pub(in crate::store::redis) enum Origin {
    Server(ConnectionInfo),
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
    Pool(Pool),
}

/// Each new connection calls the sentinels, so that a failover takes effect with the next connection.
#[cfg(feature = "sentinel")]
pub(in crate::store::redis) struct Sentinels {
    /// In the order of their URLs, which also have the logins.
    pub(in crate::store::redis) known: Vec<ConnectionInfo>,
    /// As in `sentinel monitor`.
    pub(in crate::store::redis) name: String,
    /// Its address is replaced by the one that a sentinel names.
    pub(in crate::store::redis) primary: ConnectionInfo,
    /// Index of the sentinel to call first: the last to name the primary.
    pub(in crate::store::redis) first: AtomicUsize,
}

impl ConnSource {
    /// Opens a connection, or takes one from the application's pool for good, and checks the server's Lua.
    pub(in crate::store::redis) async fn take(&self) -> Result<Link, Error> {
        let late = |late| {
            let text =
                "a new connection to Redis had no reply in time: if the server is there, only one side may use TLS";
            Error::new(Kind::Timeout, text).with_source(late)
        };
        let connect = &self.connect;
        let opened = match &self.origin {
            Origin::Server(server) => timeout(connect.timeout, connect.open(server)).await,
            // Some sentinels may not respond.
            #[cfg(feature = "sentinel")]
            Origin::Sentinels(sentinels) => timeout(connect.timeout.saturating_mul(8), sentinels.find(connect)).await,
            // The pool has its own timeouts of connecting.
            Origin::Pool(pool) => Ok(pool.get().await.map(taken).map_err(refused)),
        };
        let mut link = opened.map_err(late)??;
        if let Some(calls) = connect.calls {
            let checked = timeout(connect.timeout.saturating_mul(2), check(&mut link, calls, &connect.prefix))
                .await
                .map_err(late)?;
            checked.map_err(|error| if error.is_connection() { not_connected(error) } else { error })?;
        }
        Ok(link)
    }
}

#[cfg(feature = "sentinel")]
impl Sentinels {
    /// Calls each sentinel once, from the last successful one on, until one names a primary.
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

/// A server on a Unix socket becomes one on TCP.
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

/// Checks the role, because after a failover a sentinel may still name the old primary, now a replica.
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

/// Takes a connection out of its pool. Its own timeout of replies would end it with all that is in flight, and late
/// replies could not be refunded.
fn taken(pooled: Connection) -> Link {
    let mut connection = Connection::take(pooled);
    connection.set_response_timeout(UNBOUNDED);
    Link::Pool(connection)
}

fn refused(error: PoolError) -> Error {
    match error {
        PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
        error => not_connected(error),
    }
}

/// Rejects `#insecure`, and parameters that the redis crate ignores. Errors never contain the URL, which may have a
/// password.
pub(in crate::store::redis) fn server_at(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| Error::invalid(fault(url)).with_source(error))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = info.addr() {
        return Err(Error::invalid(
            "#insecure is not supported, as it skips the verification of the server: use its root certificate instead",
        ));
    }
    if info.redis_settings().username().is_some() && info.redis_settings().password().is_none() {
        return Err(Error::invalid(
            "a user without a password is not logged in: use user:password@host in the Redis URL",
        ));
    }
    // The redis crate ignores all others: with a `db` that other clients read, two services would share database 0.
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

fn fault(url: &str) -> &'static str {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let encrypted = ["rediss", "valkeys"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if encrypted && !cfg!(feature = "tls") {
        "this Redis URL requires TLS: enable the feature `tls` of tollgate"
    } else {
        "not a valid Redis URL: use redis://[user:password@]host:port[/db], rediss:// for TLS, or \
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
