//! Where the connections to one server come from.

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

/// A pool, and what is asked of a connection before it is used.
pub(in crate::store::redis) struct Source {
    pool: Supply,
    /// How decisions will be asked for, if by Lua.
    calls: Option<Calls>,
    /// How long the server may take to show that it is a Redis.
    timeout: Duration,
}

enum Supply {
    /// A pool that knows how to connect, and bounds how many connections there are.
    Own(LinkPool),
    /// A pool of the user's, which drives its connections by itself.
    Given(Pool),
}

impl Source {
    pub(super) fn own(pool: LinkPool, calls: Option<Calls>, timeout: Duration) -> Self {
        Self { pool: Supply::Own(pool), calls, timeout }
    }

    pub(in crate::store::redis) fn given(pool: Pool, calls: Calls, timeout: Duration) -> Self {
        Self { pool: Supply::Given(pool), calls: Some(calls), timeout }
    }

    /// Opens a connection, or takes one of the user's, to a server that counts as Redis does. Every step
    /// is bounded, but for what the user's pool does.
    pub(in crate::store::redis) async fn take(&self) -> Result<Link, Error> {
        let mut link = match &self.pool {
            Supply::Own(pool) => Manager::link(pool).await?,
            Supply::Given(pool) => {
                let connection = deadpool_redis::Connection::take(pool.get().await.map_err(refused)?);
                Link { connection, driver: Box::pin(pending()), room: None }
            }
        };
        if let Some(calls) = self.calls {
            let late = |late| Error::new(Kind::Timeout, "a new connection did not answer in time").with_source(late);
            timeout(self.timeout, check(&mut link, calls)).await.map_err(late)??;
        }
        Ok(link)
    }
}

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
