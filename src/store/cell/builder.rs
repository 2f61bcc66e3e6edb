//! Settings of a store on redis-cell, and connecting.
//!
//! The settings are those of a Redis store that apply to one server and plain commands. `connect`
//! makes a first call, so that a missing module or permission is an error at the start and not with
//! the first request.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::store::RedisCellStore;
use super::throttle::Throttle;
use crate::core::error::Kind;
use crate::core::{Error, Key, Quota};
use crate::store::redis::in_time;
use crate::store::{Check, Counter, Credentials, RedisStore, RedisStoreBuilder};

/// Settings of a [`RedisCellStore`]. Every wait has a limit.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{RedisCellStore, Store};
///
/// # async fn run() -> Result<(), tollgate::Error> {
/// let store = RedisCellStore::builder()
///     .prefix("shop")
///     .budget(Duration::from_millis(50))
///     .connect_timeout(Duration::from_secs(1))
///     .connect("redis://127.0.0.1:6379")
///     .await?;
/// assert_eq!(store.capabilities(&[])?.budget, Some(Duration::from_millis(50)));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct RedisCellStoreBuilder {
    /// The settings that both stores have.
    settings: RedisStoreBuilder,
}

impl RedisCellStoreBuilder {
    /// Sets what every key starts with, instead of `tollgate`. Stores with different prefixes share
    /// no counter.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { settings: self.settings.prefix(prefix) }
    }

    /// Sets how long one decision may take, instead of 100 ms: waiting for a connection, sending,
    /// and the reply. A decision that takes longer is an error that
    /// [`is_timeout`](Error::is_timeout).
    pub fn budget(self, budget: Duration) -> Self {
        Self { settings: self.settings.budget(budget) }
    }

    /// Sets how long connecting may take, instead of 500 ms. A decision waits for it no longer than
    /// its budget; connecting continues meanwhile.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { settings: self.settings.connect_timeout(timeout) }
    }

    /// Sets a function that returns user and password, called before each new connection, for
    /// credentials that expire: see
    /// [`RedisStoreBuilder::credentials`](crate::store::RedisStoreBuilder::credentials).
    pub fn credentials<F, T, E>(self, credentials: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self { settings: self.settings.credentials(credentials) }
    }

    /// Trusts servers whose certificates are signed by these roots, and no others, instead of the
    /// system's roots: one or more certificates as PEM, for `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { settings: self.settings.root_certificates(pem) }
    }

    /// Sets the certificate that is sent to servers that request one: its chain, and its private
    /// key, each as PEM.
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { settings: self.settings.client_certificate(chain, key) }
    }

    /// Connects to one server, by a URL as of a [`RedisStore`], and looks at a bucket, which
    /// shows that the module is loaded and may be called.
    ///
    /// # Permissions
    ///
    /// A user of Redis's ACL needs no more than this, with the prefix as it is set:
    ///
    /// ```text
    /// ACL SETUSER limiter on >password ~tollgate:* +cl.throttle +del
    /// ```
    ///
    /// A database in the URL takes `+select`.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong, or the server cannot be reached or refuses the connection.
    /// [`is_store`](Error::is_store) if it has no redis-cell, or the user may not call it.
    pub async fn connect(self, url: &str) -> Result<RedisCellStore, Error> {
        let limit = self.settings.longest_start();
        let (redis, address) = self.settings.without_scripts(url)?;
        let check = Check::new(nobodys_counter(), 0);
        let throttle = Throttle::of(redis.cell_key(&check.counter), &check)?;
        let looked = async {
            redis.prepare().await?;
            match redis.command(&throttle.command()).await {
                Err(error) => match of_the_module(&error, &address) {
                    Some(text) => Ok(Err(Error::new(Kind::Store, text).with_source(error))),
                    None => Err(error),
                },
                reply => reply.map(Ok),
            }
        };
        throttle.step(&check, in_time(limit, &address, looked).await??)?;
        Ok(RedisCellStore::new(redis))
    }
}

impl RedisCellStore {
    /// Connects with the default settings. See [`RedisCellStoreBuilder::connect`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong, the server cannot be reached or refuses the connection, or has no
    /// redis-cell.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Settings to connect with.
    pub fn builder() -> RedisCellStoreBuilder {
        RedisCellStoreBuilder { settings: RedisStore::builder() }
    }
}

/// The counter that is looked at to try the server out; no request has it.
fn nobodys_counter() -> Counter {
    Counter::new("connect".try_into().expect("a valid name"), Key::new("connect", ""), Quota::per_second(1))
}

/// Explains a refusal that is about the module: it is not loaded, or may not be called. `None` for
/// any other error.
fn of_the_module(error: &Error, address: &str) -> Option<String> {
    let error: &RedisError = error.source()?.downcast_ref()?;
    if error.detail().is_some_and(|detail| detail.contains("unknown command")) {
        return Some(format!(
            "the Redis at {address} has no CL.THROTTLE: load the module redis-cell there (redis-server --loadmodule \
             /path/to/libredis_cell.so, or a line loadmodule in its configuration), or take a RedisStore"
        ));
    }
    (error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)).then(|| {
        format!("the user of the Redis at {address} may not call CL.THROTTLE on these keys: allow it by ACL SETUSER")
    })
}

impl fmt::Debug for RedisCellStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCellStoreBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
