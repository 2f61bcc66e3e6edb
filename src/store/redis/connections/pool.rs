//! Pools, each of connections to one server.
//!
//! The settings of a builder and the address of a server come in; a `Source` goes out. All timeouts
//! of connecting are set here:
//!
//! | what | at most |
//! | --- | --- |
//! | waiting for a place in the pool, or connecting to a server | the connect timeout |
//! | the same by sentinels | 8 connect timeouts |
//! | a sentinel naming the primary, the primary saying that it is one | 1 connect timeout each |
//! | the check that the server is a Redis | 2 connect timeouts |

use std::time::Duration;

use deadpool::Runtime;
use deadpool_redis::redis::ConnectionInfo;

use super::credentials::{Login, Provider};
use super::dial::Dialer;
use super::link::{Connector, LinkPool, Manager};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::server::Server;
use super::source::Source;
use super::tls::Encryption;
use crate::core::Error;
use crate::store::redis::wire::Calls;

/// Connect timeouts that connecting by sentinels may take: a sentinel names a server, that is
/// connected to and says whether it is the primary, and the first sentinels may not respond.
#[cfg(feature = "sentinel")]
const STEPS: u32 = 8;

/// Connect timeouts that the check of a new connection may take: it is called once, or twice if a
/// library is missing there. Loading once more what the server has flushed in between gets no
/// additional time.
pub(in crate::store::redis) const CHECKING: u32 = 2;

/// The most connections of a pool, whose places are allocated at once.
const MOST_CONNECTIONS: usize = 65_536;

/// How the pools of a store are made: its settings, the same for all servers.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Pools {
    /// The most connections to one server at once; 0 is refused when a pool is made.
    pub(in crate::store::redis) size: usize,
    /// How long connecting to a server may take.
    pub(in crate::store::redis) connect_timeout: Duration,
    /// How connections are encrypted, where the address says that they are.
    pub(in crate::store::redis) encryption: Encryption,
    /// What returns user and password, if not the URL.
    pub(in crate::store::redis) credentials: Option<Provider>,
    /// What opens streams, if not this crate.
    pub(in crate::store::redis) dialer: Option<Dialer>,
    /// How decisions will be called for; `None` for a store that calls no Lua.
    pub(in crate::store::redis) calls: Option<Calls>,
}

impl Pools {
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
    ///
    /// # Errors
    ///
    /// If the pool's size is 0 or too large.
    pub(in crate::store::redis) fn of_server(&self, server: Server) -> Result<Source, Error> {
        self.of(server, self.connect_timeout)
    }

    /// Returns the source of connections to the primary that sentinels name: each new one calls
    /// them.
    ///
    /// The sentinels are logged in to as their URLs say. The primary is logged in to as `login` or
    /// the provider says, and is encrypted if the first sentinel is.
    ///
    /// # Errors
    ///
    /// If there is no sentinel, or the pool's size is 0 or too large.
    #[cfg(feature = "sentinel")]
    pub(in crate::store::redis) fn of_sentinels(
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
        let sentinels = Sentinels::new(sentinels, name, primary, self.connect_timeout);
        self.of(sentinels, self.connect_timeout.saturating_mul(STEPS))
    }

    /// Returns an error if the pools could never have a connection, or would take memory for more than any server has.
    pub(in crate::store::redis) fn check(&self) -> Result<(), Error> {
        if self.size == 0 {
            return Err(Error::invalid("a pool of size 0 never gives a connection: give at least 1"));
        }
        if self.size > MOST_CONNECTIONS {
            let text = format!("a pool of size {} is not allowed: give at most {MOST_CONNECTIONS}", self.size);
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// Makes a pool whose waiting and connecting take at most `limit` each.
    fn of(&self, connector: impl Connector + 'static, limit: Duration) -> Result<Source, Error> {
        self.check()?;
        let pool = LinkPool::builder(Manager::new(connector))
            .max_size(self.size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limit))
            .create_timeout(Some(limit))
            .recycle_timeout(Some(limit))
            .build()
            .map_err(|error| Error::invalid("the connection pool cannot be built").with_source(error))?;
        Ok(Source::own(pool, self.calls, self.connect_timeout.saturating_mul(CHECKING)))
    }
}
