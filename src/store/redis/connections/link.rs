//! An open connection: while it is logged in to and checked, and when calls are made on it.

use std::future::{poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::dial::Duplex;
use super::failure::not_connected;
use crate::core::Error;

/// A connection on which calls are made.
pub(in crate::store::redis) enum Link {
    Tcp(TcpStream),
    /// Of TLS, of a Unix socket, or of the application's closure.
    Other(Box<dyn Duplex>),
    /// One of the application's pool, which has a task of its own.
    Pool(MultiplexedConnection),
}

/// A connection that is not ready yet: the redis crate logs in on it, and a few commands are sent by it.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    take: Box<dyn FnOnce() -> Option<Link> + Send>,
}

impl Opened {
    /// Logs in on a stream. The redis crate's own timeouts are off, as connecting as a whole is bounded.
    ///
    /// # Errors
    ///
    /// If the server refuses the login: the error is one of the connection.
    pub(super) async fn log_in<S>(stream: S, login: &RedisConnectionInfo, link: fn(S) -> Link) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let lent = Lent(Arc::new(Mutex::new(Some(stream))));
        let back = Lent(Arc::clone(&lent.0));
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(login, lent, config).await;
        let (connection, driver) = opened.map_err(not_connected)?;
        Ok(Self { connection, driver: Box::pin(driver), take: Box::new(move || back.lock().take().map(link)) })
    }

    /// The connection of a pool, which is driven elsewhere.
    pub(super) fn of_pool(connection: MultiplexedConnection) -> Self {
        let kept = connection.clone();
        Self { connection, driver: Box::pin(std::future::pending()), take: Box::new(|| Some(Link::Pool(kept))) }
    }

    /// Waits for the reply to a call made on this connection, which is driven meanwhile.
    ///
    /// # Errors
    ///
    /// If the call fails, or the connection ends before its reply.
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

    /// Takes the stream back. All replies have come, so nothing of it is in the redis crate's buffers.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub(super) fn into_link(self) -> Result<Link, Error> {
        (self.take)().ok_or_else(|| not_connected("the connection was closed"))
    }
}

/// A stream that is lent to the redis crate, and taken back.
struct Lent<S>(Arc<Mutex<Option<S>>>);

impl<S> Lent<S> {
    fn lock(&self) -> MutexGuard<'_, Option<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Unpin> Lent<S> {
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.lock()
            .as_mut()
            .map_or(Poll::Ready(Err(io::ErrorKind::NotConnected.into())), |stream| poll(Pin::new(stream)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lent<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buffer))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lent<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}
