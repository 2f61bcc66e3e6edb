//! The pool, which bounds how many connections to a server there are at once.

use std::fmt;

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};

use super::{Connector, Link};
use crate::Error;
use crate::error::Kind;

/// A pool of connections to one server.
pub(in crate::store::redis) type LinkPool = managed::Pool<Manager>;

/// Makes the connections of a pool. None is used twice: who has one keeps it until it ends.
pub(in crate::store::redis) struct Manager {
    connector: Box<dyn Connector>,
}

impl Manager {
    pub(in crate::store::redis) fn new(connector: impl Connector + 'static) -> Self {
        Self { connector: Box::new(connector) }
    }

    /// Takes a new connection from a pool. It counts as one of the pool's until its driver ends, or is
    /// dropped.
    pub(in crate::store::redis) async fn link(pool: &LinkPool) -> Result<Link, Error> {
        let mut object = pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
            error => super::not_connected(error),
        })?;
        let Link { connection, driver } = object.take().expect("a link that was used is not recycled");
        let driver = Box::pin(async move {
            driver.await;
            drop(Object::take(object));
        });
        Ok(Link { connection, driver })
    }
}

impl managed::Manager for Manager {
    type Type = Option<Link>;
    type Error = Error;

    async fn create(&self) -> Result<Option<Link>, Error> {
        self.connector.connect().await.map(Some)
    }

    async fn recycle(&self, link: &mut Option<Link>, _: &Metrics) -> RecycleResult<Error> {
        match link {
            // Its caller went away before it had it.
            Some(_) => Ok(()),
            None => Err(RecycleError::message("the link was used")),
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manager").field(&self.connector).finish()
    }
}
