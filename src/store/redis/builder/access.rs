//! Settings of how servers are reached: through which streams, as which user, and which
//! certificates are trusted.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::settings::RedisStoreBuilder;
use crate::store::Credentials;
use crate::store::redis::connections::Duplex;

impl RedisStoreBuilder {
    /// Calls a closure for user and password before each new connection, for credentials that
    /// expire: tokens of a cloud provider, passwords that are rotated.
    ///
    /// They replace those of the URL, on all nodes of a Cluster, and on the primary that sentinels
    /// name; the sentinels themselves are logged in to with the credentials of their URLs. An open connection stays
    /// logged in; when the server closes it, the next one logs in with what the closure returns
    /// then. For connections to several nodes the closure may be called at the same time, so cache
    /// a token that is to be shared. The time that it takes counts as connecting
    /// ([`connect_timeout`](Self::connect_timeout)), and its error is one of the connection.
    ///
    /// The closure runs in a task of its own on the runtime that connects, and must not block its thread. If it panics,
    /// that attempt fails with an error of the connection, and the next one calls it again.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped where it
    /// awaits something. Callers that give up before do not end it, as others may wait for the same
    /// connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::{RedisStore, store::Credentials};
    ///
    /// let settings = RedisStore::builder().credentials(|| async {
    ///     let token = tokio::fs::read_to_string("/run/secrets/redis-token").await?;
    ///     Ok::<_, std::io::Error>(Credentials::new("limiter", token.trim_end()))
    /// });
    /// let store = settings.connect("redis://127.0.0.1:6379").await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, T, E>(mut self, credentials: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.connect.credentials = Some(Arc::new(move || {
            let provided = credentials();
            Box::pin(async move { provided.await.map_err(Into::into) })
        }));
        self
    }

    /// Opens the streams to servers by a closure instead of over TCP: through a tunnel or a proxy,
    /// or to a server within the process, in tests.
    ///
    /// It receives the host and the port of the URL, or those by which a node of a Cluster, or the
    /// primary that sentinels know, is named; nothing is resolved before. Over `rediss://` the
    /// stream is then encrypted as any other. The time that it takes counts as connecting
    /// ([`connect_timeout`](Self::connect_timeout)), and its error is one of the connection. With the URL of a Unix socket
    /// it is an error.
    ///
    /// The closure runs in a task of its own on the runtime that connects, and must not block its thread, nor may reading
    /// from the stream and writing to it. If it panics, that attempt fails with an error of the connection, and the next
    /// one calls it again.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped where it
    /// awaits something. Callers that give up before do not end it, as others may wait for the same
    /// connection.
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
    ///     let mut reply = Vec::new();
    ///     while !reply.ends_with(b"\r\n\r\n") {
    ///         reply.push(proxy.read_u8().await?);
    ///     }
    ///     if !reply.starts_with(b"HTTP/1.1 200") {
    ///         return Err(std::io::ErrorKind::ConnectionRefused.into());
    ///     }
    ///     Ok(proxy)
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
        self.connect.dial = Some(Arc::new(move |host, port| {
            let dialed = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialed.await?) as Box<dyn Duplex>) })
        }));
        self
    }

    /// Sets user and password for the primary that [`connect_sentinel`](Self::connect_sentinel) finds, instead of none;
    /// the user that needs no name is `default`. It is an error of all other methods that make a store.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::{RedisStore, store::Credentials};
    ///
    /// let settings = RedisStore::builder().primary_credentials(Credentials::new("limiter", "secret"));
    /// let store = settings.connect_sentinel(["redis://127.0.0.1:26379"], "main").await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    pub fn primary_credentials(mut self, credentials: Credentials) -> Self {
        self.primary = Some(credentials);
        self
    }
}

#[cfg(feature = "tls")]
impl RedisStoreBuilder {
    /// Trusts servers whose certificates these roots vouch for, and no others, instead of the
    /// system's roots: one or more certificates as PEM, for `rediss://` URLs.
    ///
    /// The certificate must be for the host in the URL, be it a name or an address; those of a
    /// Cluster's other nodes and of the primary that sentinels name are for the host by which they
    /// are named.
    ///
    /// PEM that cannot be read, and certificates for a URL that is not encrypted, are errors of the
    /// method that makes the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// # async fn run() {
    /// let settings = RedisStore::builder().root_certificates("no certificate");
    /// let store = settings.connect("rediss://127.0.0.1:6380").await;
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// # }
    /// ```
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.root = Some(pem.into());
        self
    }

    /// Sets the certificate that is sent to servers that request one: its chain, and its private
    /// key, each as PEM. Errors are as for [`root_certificates`](Self::root_certificates).
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some((chain.into(), key.into()));
        self
    }
}
