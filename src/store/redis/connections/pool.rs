//! Pools, each of connections to one server.

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

/// Connecting asks a sentinel, asks the server it names for its role, and connects to it; the first
/// sentinels may not answer.
#[cfg(feature = "sentinel")]
const STEPS: u32 = 8;

/// A new connection is asked for what tells a Redis once, or twice if a library is missing there; what is loaded again,
/// as the server forgot it in between, has no more time.
pub(in crate::store::redis) const CHECKING: u32 = 2;

/// How pools are made.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Pools {
    pub(in crate::store::redis) size: usize,
    pub(in crate::store::redis) connect_timeout: Duration,
    pub(in crate::store::redis) encryption: Encryption,
    pub(in crate::store::redis) credentials: Option<Provider>,
    pub(in crate::store::redis) dialer: Option<Dialer>,
    /// How decisions will be asked for, if by Lua.
    pub(in crate::store::redis) calls: Option<Calls>,
}

impl Pools {
    /// A server, as a URL says where it is and who is logged in there.
    pub(in crate::store::redis) fn server(&self, info: &ConnectionInfo) -> Server {
        Server {
            address: info.addr().clone(),
            login: Login::new(info.redis_settings().clone(), self.credentials.clone()),
            encryption: self.encryption.clone(),
            dialer: self.dialer.clone(),
        }
    }

    /// Connections to a server.
    pub(in crate::store::redis) fn of_server(&self, server: Server) -> Result<Source, Error> {
        self.of(server, self.connect_timeout)
    }

    /// Connections to the primary that sentinels name: each new one asks them.
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
            return Err(Error::invalid("without a sentinel nobody names the primary: give at least one URL"));
        };
        let primary = Server { login: Login::new(login.into(), self.credentials.clone()), ..first.clone() };
        let sentinels = Sentinels::new(sentinels, name, primary, self.connect_timeout);
        self.of(sentinels, self.connect_timeout.saturating_mul(STEPS))
    }

    pub(in crate::store::redis) fn check(&self) -> Result<(), Error> {
        if self.size == 0 {
            return Err(Error::invalid("a pool of size 0 never gives a connection: give at least 1"));
        }
        Ok(())
    }

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
