use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::settings::RedisStoreBuilder;
use crate::store::Credentials;
use crate::store::redis::connections::Duplex;

impl RedisStoreBuilder {
    /// Calls a closure for user and password before each new connection.
    ///
    /// Use it for credentials that expire: tokens of a cloud provider, or passwords that are rotated.
    ///
    /// The credentials replace the URL's user and password, on all nodes of a Cluster, and on the primary that
    /// sentinels name. Sentinels use the credentials of their URLs. An open connection stays logged in. When the server
    /// closes the connection, the next connection logs in with the credentials that the closure returns then. The
    /// closure may run concurrently for several nodes, so cache a token that is shared. The time of the closure counts
    /// as connecting ([`connect_timeout`](Self::connect_timeout)), and an error of the closure is an error of the
    /// connection.
    ///
    /// The closure runs in its own task on the runtime that connects, and must not block its thread. If it panics, the
    /// attempt fails with an error of the connection, and the next attempt calls it again.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped at its next await. Callers that
    /// give up earlier do not end it, because others may wait for the same connection.
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

    /// Opens the streams to servers by a closure instead of over TCP.
    ///
    /// Use it for a tunnel, a proxy, or an in-process server in tests.
    ///
    /// The closure receives the host and port of the URL, or the name of a Cluster's node or of the primary that
    /// sentinels name. Nothing is resolved before. Over `rediss://` the stream is then encrypted like any other. The
    /// closure's time counts as connecting ([`connect_timeout`](Self::connect_timeout)), and its error is an error of
    /// the connection. A closure together with the URL of a Unix socket is an error.
    ///
    /// The closure runs in its own task on the runtime that connects. Neither it nor reads and writes of the stream may
    /// block the thread. If the closure panics, the attempt fails with an error of the connection, and the next attempt
    /// calls it again.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped at its next await. Callers that
    /// give up earlier do not end it, because others may wait for the same connection.
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

    /// Sets user and password for the primary that [`connect_sentinel`](Self::connect_sentinel) finds.
    ///
    /// The default is no login. The user of a login without a name is `default`. All other methods that make a store
    /// reject this setting.
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
    /// Trusts these root certificates instead of the system's: one or more as PEM, for `rediss://` URLs.
    ///
    /// A server's certificate must be for the host in the URL, a name or an address. Certificates of a Cluster's other
    /// nodes, and of the primary that sentinels name, must be for the host by which the server is named.
    ///
    /// PEM that cannot be read, and certificates for a URL that is not encrypted, are errors of the method that makes
    /// the store.
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

    /// Sets the client's certificate chain and private key, each as PEM.
    ///
    /// The store sends the certificate to servers that request one. Errors are as for
    /// [`root_certificates`](Self::root_certificates).
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some((chain.into(), key.into()));
        self
    }
}
