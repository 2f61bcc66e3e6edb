//! Where the connections to one server come from: its address, the sentinels that name it, or the application's pool.
//!
//! | what | at most |
//! | --- | --- |
//! | connecting to a server | the connect timeout |
//! | the same by sentinels | 8 connect timeouts |
//! | a sentinel naming the primary, the primary saying that it is one | 1 connect timeout each |
//! | the check that the server is a Redis | 2 connect timeouts |

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::ConnectionInfo;
use deadpool_redis::{Pool, PoolError};
use tokio::time::timeout;

use super::check::check;
use super::credentials::{Login, Provider};
use super::dial::Dialer;
use super::failure::not_connected;
use super::link::{Link, Opened};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::server::Server;
use super::tls::Encryption;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::Calls;

/// Connect timeouts that connecting by sentinels may take: the first ones may not respond.
#[cfg(feature = "sentinel")]
const STEPS: u32 = 8;

/// Connect timeouts that the check of a new connection may take.
const CHECKING: u32 = 2;

/// How servers are connected to: the settings of a store.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Connect {
    /// How long connecting to a server may take.
    pub(in crate::store::redis) timeout: Duration,
    /// How connections are encrypted, where the address says that they are.
    pub(in crate::store::redis) encryption: Encryption,
    /// What returns user and password, if not the URL.
    pub(in crate::store::redis) credentials: Option<Provider>,
    /// What opens streams, if not this crate.
    pub(in crate::store::redis) dialer: Option<Dialer>,
    /// How decisions will be called for; `None` for a store that calls no Lua, whose servers are not checked.
    pub(in crate::store::redis) calls: Option<Calls>,
}

/// Where connections come from.
pub(in crate::store::redis) struct Source {
    from: From,
    calls: Option<Calls>,
    /// How long connecting may take.
    limit: Duration,
    /// How long the check may take, which begins when the connection is there.
    check_limit: Duration,
}

enum From {
    Server(Server),
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
    Pool(Pool),
}

impl Connect {
    /// Returns the server at which a URL points, and who logs in there.
    pub(in crate::store::redis) fn server(&self, info: &ConnectionInfo) -> Server {
        Server {
            address: info.addr().clone(),
            login: Login::new(info.redis_settings().clone(), self.credentials.clone()),
            encryption: self.encryption.clone(),
            dialer: self.dialer.clone(),
        }
    }

    /// Returns the source of connections to a server.
    pub(in crate::store::redis) fn to_server(&self, server: Server) -> Source {
        self.from(From::Server(server), self.timeout)
    }

    /// Returns the source of connections of the application's pool. Its timeouts are its own.
    pub(in crate::store::redis) fn to_pool(&self, pool: Pool) -> Source {
        self.from(From::Pool(pool), Duration::MAX)
    }

    /// Returns the source of connections to the primary that sentinels name: each new one calls them.
    ///
    /// The sentinels are logged in to as their URLs say. The primary is logged in to as `login` or the provider says,
    /// and is encrypted if the first sentinel is.
    ///
    /// # Errors
    ///
    /// If there is no sentinel.
    #[cfg(feature = "sentinel")]
    pub(in crate::store::redis) fn by_sentinels(
        &self,
        sentinels: &[ConnectionInfo],
        name: &str,
        login: deadpool_redis::RedisConnectionInfo,
    ) -> Result<Source, Error> {
        let as_in_url = Self { credentials: None, ..self.clone() };
        let sentinels: Vec<Server> = sentinels.iter().map(|sentinel| as_in_url.server(sentinel)).collect();
        let Some(first) = sentinels.first() else {
            return Err(Error::invalid("no URL of a sentinel was given: give at least one"));
        };
        let primary = Server { login: Login::new(login.into(), self.credentials.clone()), ..first.clone() };
        let sentinels = Sentinels::new(sentinels, name, primary, self.timeout);
        Ok(self.from(From::Sentinels(sentinels), self.timeout.saturating_mul(STEPS)))
    }

    fn from(&self, from: From, limit: Duration) -> Source {
        Source { from, calls: self.calls, limit, check_limit: self.timeout.saturating_mul(CHECKING) }
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
        let mut opened = timeout(self.limit, self.open()).await.map_err(late)??;
        if let Some(calls) = self.calls {
            let late = |late| Error::new(Kind::Timeout, "a new connection did not reply in time").with_source(late);
            timeout(self.check_limit, check(&mut opened, calls)).await.map_err(late)??;
        }
        opened.into_link()
    }

    async fn open(&self) -> Result<Opened, Error> {
        match &self.from {
            From::Server(server) => server.open().await,
            #[cfg(feature = "sentinel")]
            From::Sentinels(sentinels) => sentinels.find().await,
            From::Pool(pool) => {
                let connection = pool.get().await.map_err(refused)?;
                Ok(Opened::of_pool(deadpool_redis::Connection::take(connection)))
            }
        }
    }
}

/// Returns the error of a pool of the application's that has no connection.
fn refused(error: PoolError) -> Error {
    match error {
        PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
        error => not_connected(error),
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("calls", &self.calls).finish_non_exhaustive()
    }
}
