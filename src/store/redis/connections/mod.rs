//! Where connections come from.
//!
//! A [`Connector`] stands for a server, or for whichever one sentinels name, and opens a connection to
//! it. What comes out is a [`Link`]: its two halves, apart, so that who asks is not who sends and
//! receives.

mod check;
mod credentials;
mod dial;
mod failure;
mod manager;
mod own_task;
mod pool;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod source;
mod stream;
mod tls;
mod url;

use std::fmt;
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::Poll;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError};

use crate::Error;
use crate::core::error::Kind;

pub use credentials::Credentials;
pub(super) use credentials::{Login, Provider};
pub(super) use dial::Dialer;
pub(in crate::store) use failure::{Failure, Patience};
pub(super) use failure::{failed, is_cut, is_lost, is_of_the_connection, is_redirection};
pub(in crate::store) use manager::Room;
pub(super) use manager::{LinkPool, Manager};
pub(super) use own_task::OwnTasks;
pub(super) use pool::{CHECKING, Pools};
#[cfg(feature = "sentinel")]
use sentinel::Sentinels;
pub(super) use server::Server;
pub(super) use source::Source;
pub(super) use tls::Tls;
pub(super) use url::server as server_at;

/// What sends and receives. While nobody polls it nothing does; its end is that of the connection.
pub(in crate::store) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that is being opened.
pub(in crate::store) type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send + 'a>>;

/// Opens connections. Each attempt ends by itself only if the server answers: callers bound it.
pub(in crate::store) trait Connector: Send + Sync + fmt::Debug {
    /// Opens a connection, logged in and ready for use.
    fn connect(&self) -> Connecting<'_>;
}

/// An open connection: what questions are asked with, and what sends them.
pub(in crate::store) struct Link {
    pub(in crate::store) connection: MultiplexedConnection,
    pub(in crate::store) driver: Driver,
    /// Its place among the connections of a pool, until it is dropped.
    pub(in crate::store) room: Option<Room>,
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

/// The error of a connection that did not come about.
fn not_connected(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Kind::Connection, "cannot connect to Redis").with_source(cause)
}
