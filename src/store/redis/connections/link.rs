//! An open connection, whatever opens it, and the pool that bounds how many there are to a server at once.

use std::fmt;
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::Poll;

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError};

use crate::core::Error;
use crate::core::error::Kind;

/// What sends and receives. While nobody polls it nothing does; its end is that of the connection.
pub(in crate::store::redis) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that is being opened.
pub(super) type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send + 'a>>;

/// Opens connections. Each attempt ends by itself only if the server answers: callers bound it.
pub(super) trait Connector: Send + Sync + fmt::Debug {
    /// Opens a connection, logged in and ready for use.
    fn connect(&self) -> Connecting<'_>;
}

/// An open connection: what questions are asked with, and what sends them.
pub(in crate::store::redis) struct Link {
    pub(in crate::store::redis) connection: MultiplexedConnection,
    pub(in crate::store::redis) driver: Driver,
    /// Its place among the connections of a pool, until it is dropped.
    pub(in crate::store::redis) room: Option<Room>,
}

impl Link {
    /// Waits for the answer to something asked on this connection, which is driven meanwhile.
    pub(super) async fn drive<T>(
        &mut self,
        question: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let (mut question, driver) = (pin!(question), &mut self.driver);
        poll_fn(|cx| {
            if let Poll::Ready(answer) = question.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            if driver.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Whoever drives it next finds that it has ended.
            *driver = Box::pin(ready(()));
            match question.as_mut().poll(cx) {
                Poll::Pending => Poll::Ready(Err((ErrorKind::Io, "the connection was closed").into())),
                answered @ Poll::Ready(_) => answered,
            }
        })
        .await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// A pool of connections to one server.
pub(super) type LinkPool = managed::Pool<Manager>;

/// Makes the connections of a pool. None is used twice: who has one keeps it until it ends.
pub(super) struct Manager {
    connector: Box<dyn Connector>,
}

impl Manager {
    pub(super) fn new(connector: impl Connector + 'static) -> Self {
        Self { connector: Box::new(connector) }
    }

    /// Takes a new connection from a pool. It counts as one of the pool's until its room is dropped.
    pub(super) async fn link(pool: &LinkPool) -> Result<Link, Error> {
        let mut object = pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
            error => not_connected(error),
        })?;
        let link = object.take().expect("a link that was used is not recycled");
        Ok(Link { room: Some(Room(Some(Box::new(object)))), ..link })
    }
}

/// The place of a connection among those of a pool.
pub(in crate::store::redis) struct Room(Option<Box<Object<Manager>>>);

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.0.take().map(|object| Object::take(*object)));
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

/// The error of a connection that did not come about.
pub(super) fn not_connected(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Kind::Connection, "cannot connect to Redis").with_source(cause)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use deadpool::Runtime;
    use deadpool_redis::redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};
    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// Opens connections whose other ends it gives away.
    #[derive(Debug)]
    struct Pipes(UnboundedSender<DuplexStream>);

    impl Connector for Pipes {
        fn connect(&self) -> Connecting<'_> {
            Box::pin(async {
                let (near, far) = duplex(1_024);
                let _ = self.0.send(far);
                let (login, config) =
                    (RedisConnectionInfo::default().set_skip_set_lib_name(), AsyncConnectionConfig::new());
                let opened = MultiplexedConnection::new_with_config(&login, near, config).await;
                let (connection, driver) = opened.map_err(not_connected)?;
                Ok(Link { connection, driver: Box::pin(driver), room: None })
            })
        }
    }

    /// A pool of one, and the other ends of its connections.
    fn pool() -> (LinkPool, UnboundedReceiver<DuplexStream>) {
        let (far, ends) = unbounded_channel();
        let pool = LinkPool::builder(Manager::new(Pipes(far))).max_size(1).runtime(Runtime::Tokio1);
        (pool.wait_timeout(Some(Duration::from_secs(1))).build().expect("the settings are valid"), ends)
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_no_more_connections_at_once_than_the_pool_has_room_for() {
        let (pool, mut ends) = pool();
        let Link { connection, driver, room } = Manager::link(&pool).await.expect("there is room");
        let full = Manager::link(&pool).await.expect_err("there is no more room");
        assert!(full.is_timeout(), "{full:#}");
        drop(room);
        let Link { driver: other, .. } = Manager::link(&pool).await.expect("what is dropped makes room");
        let (first, second) = (ends.recv().await, ends.recv().await);
        drop((connection, first, second));
        driver.await;
        other.await;
        Manager::link(&pool).await.expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_on_a_connection_that_ends_is_an_error_and_the_driver_ends_once_more() {
        let (pool, mut ends) = pool();
        let mut link = Manager::link(&pool).await.expect("there is room");
        drop(ends.recv().await);
        let mut connection = link.connection.clone();
        let answer: Result<(), _> = link.drive(cmd("PING").query_async(&mut connection)).await;
        assert!(answer.is_err_and(|error| error.is_io_error() || error.is_connection_dropped()));
        tokio::time::timeout(Duration::from_secs(1), link.driver).await.expect("it has ended");
    }
}
