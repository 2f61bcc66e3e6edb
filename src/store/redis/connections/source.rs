//! Where the connections to one server come from.
//!
//! A pool of this crate's, or one of the application's, comes in; open connections go out, each to
//! a server that has shown that its Lua counts as that of Redis. The check is made here, behind
//! both kinds of pool, so that no decision is ever made on a connection that was not checked.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use deadpool_redis::{Pool, PoolError};
use tokio::time::timeout;

use super::check::check;
use super::link::{Link, LinkPool, Manager, not_connected};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::Calls;

/// A pool, and how its connections are checked before they are used.
pub(in crate::store::redis) struct Source {
    pool: Supply,
    /// How decisions will be called for; `None` for a store that calls no Lua, whose servers are
    /// not checked.
    calls: Option<Calls>,
    /// How long the check may take, which begins when the connection is there.
    timeout: Duration,
}

/// Whose pool it is.
enum Supply {
    /// A pool that opens connections, and limits their number.
    Own(LinkPool),
    /// A pool of the user's, which drives its connections by itself.
    Given(Pool),
}

impl Source {
    /// Returns the source of connections that this crate opens.
    pub(super) fn own(pool: LinkPool, calls: Option<Calls>, timeout: Duration) -> Self {
        Self { pool: Supply::Own(pool), calls, timeout }
    }

    /// Returns the source of connections that the application's pool opens.
    pub(in crate::store::redis) fn given(pool: Pool, calls: Calls, timeout: Duration) -> Self {
        Self { pool: Supply::Given(pool), calls: Some(calls), timeout }
    }

    /// Opens a connection, or takes one of the application's pool for good, to a server that counts
    /// as Redis does. Every step is bounded in time, but for what the application's pool does.
    ///
    /// A connection of that pool has its driver in a task of its own: its link's driver never ends.
    ///
    /// # Errors
    ///
    /// If there is no connection in time, the server cannot be reached or refuses the login, or is
    /// no Redis.
    pub(in crate::store::redis) async fn take(&self) -> Result<Link, Error> {
        let mut link = match &self.pool {
            Supply::Own(pool) => Manager::link(pool).await?,
            Supply::Given(pool) => {
                let connection = deadpool_redis::Connection::take(pool.get().await.map_err(refused)?);
                Link { connection, driver: Box::pin(pending()), room: None }
            }
        };
        if let Some(calls) = self.calls {
            let late = |late| Error::new(Kind::Timeout, "a new connection did not reply in time").with_source(late);
            timeout(self.timeout, check(&mut link, calls)).await.map_err(late)??;
        }
        Ok(link)
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
