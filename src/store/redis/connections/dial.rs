//! Streams that a closure opens.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::not_connected;
use super::own_task::OwnTasks;
use crate::Error;
use crate::store::redis::RedisStoreBuilder;

/// A stream, of whatever kind.
pub(in crate::store::redis) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// Opens streams to hosts and ports.
#[derive(Clone)]
pub(in crate::store::redis) struct Dialer {
    dial: Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>,
    tasks: OwnTasks,
}

impl Dialer {
    /// Opens a stream to a host's port.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn Duplex>, Error> {
        let (dial, host) = (Arc::clone(&self.dial), host.to_owned());
        let dialed = self.tasks.run(move || dial(host, port)).await;
        dialed.map_err(not_connected)?.map_err(not_connected)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl RedisStoreBuilder {
    /// Opens the streams to servers by a closure instead of over TCP: through a tunnel or a proxy, or to
    /// a server within the process, in tests.
    ///
    /// It is given the host and the port of the URL, or those by which a node of a Cluster, or the primary that
    /// sentinels know, is named; nothing is resolved before. Over `rediss://` the stream is then encrypted as any
    /// other. What it takes to return counts as connecting ([`connect_timeout`](Self::connect_timeout)), and its
    /// error is one of the connection. Sockets of Unix are opened as ever.
    ///
    /// The closure runs in a task of its own on the runtime that connects. If it panics, that attempt fails with an
    /// error of the connection, and the next one calls it again. If it blocks its thread, decisions still end within
    /// their budget as long as the runtime has another thread. Of those that
    /// were called and have not awaited anything yet, by this closure and by that for credentials, half of the runtime's threads
    /// are kept at most, and at least one; further calls wait for them, as long as connecting may take. The
    /// stream has no task of its own: reading from it and writing to it must never block.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped where it awaits something.
    /// Callers that give up before do not end it, as others may wait for the same connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use tokio::net::TcpStream;
    /// use tollgate::RedisStore;
    ///
    /// let settings = RedisStore::builder().dial(|host, port| async move {
    ///     let mut proxy = TcpStream::connect("127.0.0.1:3128").await?;
    ///     proxy.write_all(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").as_bytes()).await?;
    ///     let mut answer = Vec::new();
    ///     while !answer.ends_with(b"\r\n\r\n") {
    ///         answer.push(proxy.read_u8().await?);
    ///     }
    ///     if answer.starts_with(b"HTTP/1.1 200") { Ok(proxy) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) }
    /// });
    /// let store = settings.connect("redis://redis.internal:6379").await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dial<F, T, S>(mut self, dial: F) -> Self
    where
        F: Fn(String, u16) -> T + Send + Sync + 'static,
        T: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let dial = move |host, port| -> Dialing {
            let dialing = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Duplex>) })
        };
        self.dialer = Some(Dialer { dial: Arc::new(dial), tasks: self.own_tasks.clone() });
        self
    }
}
