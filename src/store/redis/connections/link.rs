//! An open connection, and the pool that bounds how many there are to a server at once.
//!
//! A connector comes in; links go out. A link is taken from the pool for good, and only its `Room`
//! stays behind, which counts as one of the pool's connections until it is dropped. So the pool
//! does what pools are good at, bounding the number and the time of attempts to connect, while a
//! connection is shared by all calls of a runtime instead of being lent to one at a time.

use std::fmt;
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::Poll;

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError};

use crate::core::Error;
use crate::core::error::Kind;

/// What sends and receives. Unless it is polled, nothing is sent or received; when it completes,
/// the connection has ended.
pub(in crate::store::redis) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that is being opened.
pub(super) type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send + 'a>>;

/// Opens connections to one server, or to the one that is primary at the time. An attempt need not
/// end by itself if the server does not respond: callers bound it.
pub(super) trait Connector: Send + Sync + fmt::Debug {
    /// Opens a connection, logged in and ready for use.
    ///
    /// # Cancellation
    ///
    /// The attempt is given up, and a stream that is open is closed.
    fn connect(&self) -> Connecting<'_>;
}

/// An open connection: what calls are made with, and what sends them.
pub(in crate::store::redis) struct Link {
    /// Makes calls. Clones share the connection, and several calls may be in flight.
    pub(in crate::store::redis) connection: MultiplexedConnection,
    /// Must be polled as long as there are calls. Never ends for a connection of the application's
    /// pool.
    pub(in crate::store::redis) driver: Driver,
    /// Its place among the connections of a pool, until that is dropped; `None` where there is
    /// none.
    pub(in crate::store::redis) room: Option<Room>,
}

impl Link {
    /// Waits for the reply to a call made on this connection, which is driven meanwhile.
    ///
    /// # Errors
    ///
    /// If the call fails, or the connection ends before its reply. The driver has completed then,
    /// and completes once more if it is polled again.
    ///
    /// # Cancellation
    ///
    /// The call may have been sent; the link can be used further.
    pub(super) async fn drive<T>(
        &mut self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let (mut call, driver) = (pin!(call), &mut self.driver);
        poll_fn(|cx| {
            if let Poll::Ready(result) = call.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if driver.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // The next poll finds that it has ended.
            *driver = Box::pin(ready(()));
            match call.as_mut().poll(cx) {
                Poll::Pending => Poll::Ready(Err((ErrorKind::Io, "the connection was closed").into())),
                result @ Poll::Ready(_) => result,
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

/// Makes the connections of a pool. None is used twice: a link is out of the pool's hands when it
/// is taken.
pub(super) struct Manager {
    connector: Box<dyn Connector>,
}

impl Manager {
    /// Returns the manager of a pool whose connections a connector opens.
    pub(super) fn new(connector: impl Connector + 'static) -> Self {
        Self { connector: Box::new(connector) }
    }

    /// Takes a new connection from a pool. It counts as one of the pool's until its room is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If no place becomes free, or connecting takes too long, within the pool's timeouts; or as
    /// the connector fails.
    pub(super) async fn link(pool: &LinkPool) -> Result<Link, Error> {
        let mut object = pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(TimeoutType::Create) => {
                let text =
                    "a new connection to Redis had no reply in time: if the server is there, only one side may use TLS";
                Error::new(Kind::Timeout, text).with_source(error)
            }
            PoolError::Timeout(_) => Error::new(Kind::Timeout, "no connection to Redis in time").with_source(error),
            error => not_connected(error),
        })?;
        let link = object.take().expect("a link that was used is not recycled");
        Ok(Link { room: Some(Room(Some(Box::new(object)))), ..link })
    }
}

/// The place of a connection among those of a pool, which is free again when this is dropped.
pub(in crate::store::redis) struct Room(Option<Box<Object<Manager>>>);

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.0.take().map(|object| Object::take(*object)));
    }
}

impl managed::Manager for Manager {
    type Type = Option<Link>;
    type Error = Error;

    /// Opens a connection.
    async fn create(&self) -> Result<Option<Link>, Error> {
        self.connector.connect().await.map(Some)
    }

    /// Keeps a link that was not taken, as its caller was cancelled; all others are gone, and their
    /// places are made free by their rooms.
    async fn recycle(&self, link: &mut Option<Link>, _: &Metrics) -> RecycleResult<Error> {
        match link {
            // Its caller was cancelled before it received it.
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

/// Returns the error of a connection that could not be opened.
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

    /// Opens connections whose other ends are sent to the test.
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
        let result: Result<(), _> = link.drive(cmd("PING").query_async(&mut connection)).await;
        assert!(result.is_err_and(|error| error.is_io_error() || error.is_connection_dropped()));
        tokio::time::timeout(Duration::from_secs(1), link.driver).await.expect("it has ended");
    }
}
