//! Settings of a Redis store that do not depend on what it connects to.
//!
//! Each has a default, and is checked when a store is made, not when it is set: so the order of the
//! options does not matter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "sentinel")]
use deadpool_redis::redis::RedisConnectionInfo;
use tokio::runtime::Handle as Runtime;

use crate::core::Error;
use crate::store::redis::connections::Connect;
#[cfg(feature = "tls")]
use crate::store::redis::connections::Tls;
use crate::store::redis::engine::{Engine, ServerTime};
use crate::store::redis::pipeline::Settings;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;
use crate::store::redis::wire::Calls;
use crate::store::{Clock, DenyCache, DenyCacheBuilder};

/// The longest prefix of keys, in bytes: it is part of every key in every call.
const LONGEST_PREFIX: usize = 64;

/// The most checks of calls that leave together. More are not cheaper by the check, and all places
/// in a call are one byte.
const LARGEST_BATCH: usize = 128;

/// The most calls in flight on a connection: of more, none would be shared.
const MOST_IN_FLIGHT: usize = 16;

/// The most connections to one server: more than any server takes.
const MOST_CONNECTIONS: usize = 65_536;

/// Settings of a [`RedisStore`]. Every wait is bounded.
///
/// | setting | default | bounds |
/// | --- | --- | --- |
/// | [`prefix`](Self::prefix) | `tollgate` | 1 to 64 printable ASCII characters, no braces |
/// | [`pool_size`](Self::pool_size) | 16 connections to a server | at least 1 |
/// | [`batch_size`](Self::batch_size) | 128 checks in a call | 1 to 128 |
/// | [`calls_in_flight`](Self::calls_in_flight) | 2 on a connection | 1 to 16 |
/// | [`timeout`](Self::timeout) | 100 ms for a decision | more than 0 |
/// | [`connect_timeout`](Self::connect_timeout) | 500 ms | more than 0 |
/// | [`deny_cache_max_ttl`](Self::deny_cache_max_ttl) | 1 s | more than 0 |
/// | [`deny_cache_capacity`](Self::deny_cache_capacity) | 100,000 refusals | at least 1 |
///
/// Settings are checked when the store is made: a value out of bounds is an error of `connect` and
/// the other methods that make one, for which [`Error::is_invalid`](crate::Error::is_invalid) is
/// true.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::Store;
/// use tollgate::RedisStore;
///
/// let store = RedisStore::builder()
///     .prefix("api")
///     .timeout(Duration::from_millis(50))
///     .connect_lazy("redis://127.0.0.1:6379")?;
/// assert_eq!(store.capabilities(&[])?.timeout, Some(Duration::from_millis(50)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use]
pub struct RedisStoreBuilder {
    /// What every key starts with.
    prefix: String,
    /// How long one decision may take.
    pub(super) budget: Duration,
    /// How calls are made.
    pub(super) calls: Settings,
    /// How servers are connected to, except for encryption.
    pub(super) connect: Connect,
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
    /// User and password for the primary that sentinels name.
    #[cfg(feature = "sentinel")]
    pub(super) primary: RedisConnectionInfo,
    /// The settings of the deny cache; `None` without one.
    deny_cache: Option<DenyCacheBuilder>,
}

impl RedisStoreBuilder {
    /// Returns the default settings.
    pub(super) fn new() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            budget: Duration::from_millis(100),
            calls: Settings {
                calls: Calls::default(),
                clock: None,
                batch_size: LARGEST_BATCH,
                in_flight: 2,
                most: 16,
                runtime: None,
            },
            connect: Connect { timeout: Duration::from_millis(500), ..Connect::default() },
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            #[cfg(feature = "sentinel")]
            primary: RedisConnectionInfo::default(),
            deny_cache: Some(DenyCache::builder()),
        }
    }

    /// Sets what every key starts with, instead of `tollgate`: 1 to 64 printable ASCII characters
    /// without braces. Stores with the same prefix on one server share their counters; give each
    /// application its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::builder().prefix("shop:limits").connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_ok());
    /// let store = RedisStore::builder().prefix("{shop}").connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how many connections there are to each server at most, instead of 16; 0 and more than 65,536 are refused,
    /// unless the pool is [given](Self::from_pool).
    ///
    /// All decisions of a runtime share one connection to each server. Set at least as many as there are runtimes that
    /// make decisions, such as with one runtime per thread: any more runtimes share the first connection, and wait for
    /// its runtime. A connection that stopped responding is kept in addition, for up to 10 s, to receive late replies.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::builder().pool_size(0).connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.calls.most = connections;
        self
    }

    /// Sets how many checks one call decides at most, instead of 128: 1 to 128. Concurrent
    /// decisions of this process share calls. A single request with more checks is not split.
    ///
    /// More make a flood cheaper; fewer keep the server from being busy for long.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::builder().batch_size(16).connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// let store = RedisStore::builder().batch_size(1_000).connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn batch_size(mut self, checks: usize) -> Self {
        self.calls.batch_size = checks;
        self
    }

    /// Sets how many calls are sent on a connection before the reply to the first, instead of 2: 1 to 16. Decisions that
    /// come meanwhile wait, and share the next call.
    ///
    /// With one, decisions that come together are up to half a round trip later, and larger batches save the server some
    /// work; more than two make batches smaller.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::builder().calls_in_flight(1).connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// let store = RedisStore::builder().calls_in_flight(0).connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn calls_in_flight(mut self, calls: usize) -> Self {
        self.calls.in_flight = calls;
        self
    }

    /// Calls a library of Redis Functions instead of scripts, for some more checks a second.
    /// It takes Redis 7 or Valkey, and a user who may `FUNCTION LOAD`.
    ///
    /// The library is named by its content and is never replaced, so that different versions of this
    /// crate can share a server; it stays in the server's data until `FUNCTION DELETE`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::builder().functions().connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// ```
    pub fn functions(mut self) -> Self {
        self.calls.calls = Calls::Functions;
        self
    }

    /// Sets how long one decision may take, instead of 100 ms: waiting for a connection, sending,
    /// and receiving the reply. A decision that takes longer is an error, for which
    /// [`Error::is_timeout`](crate::Error::is_timeout) is true. Zero is refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::store::Store;
    /// use tollgate::RedisStore;
    ///
    /// let settings = RedisStore::builder().timeout(Duration::from_millis(20));
    /// let store = settings.connect_lazy("redis://127.0.0.1:6379")?;
    /// assert_eq!(store.capabilities(&[])?.timeout, Some(Duration::from_millis(20)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn timeout(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets how long connecting to a server may take, instead of 500 ms; with sentinels, which are called first, eight
    /// times as long. A new server may then take twice this time for the check that its Lua arithmetic is that of
    /// Redis. Zero is refused.
    ///
    /// A decision does not wait longer than its timeout for a connection; connecting goes on
    /// meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisStore;
    ///
    /// let settings = RedisStore::builder().connect_timeout(Duration::from_secs(2));
    /// assert!(settings.connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Sets for how long a refusal is cached at most, instead of 1 s: see
    /// [`DenyCache`](crate::store::DenyCache). For so long a refund or a reset by another process may go
    /// unnoticed. Zero is refused: see [`without_deny_cache`](Self::without_deny_cache).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisStore;
    ///
    /// let settings = RedisStore::builder().deny_cache_max_ttl(Duration::from_millis(200));
    /// assert!(settings.connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// ```
    pub fn deny_cache_max_ttl(self, cap: Duration) -> Self {
        Self { deny_cache: self.deny_cache.map(|cache| cache.max_ttl(cap)), ..self }
    }

    /// Sets how many refusals are cached at most, instead of 100,000. Zero is refused: see
    /// [`without_deny_cache`](Self::without_deny_cache).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::builder().deny_cache_capacity(0).connect_lazy("redis://127.0.0.1:6379");
    /// assert!(store.is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn deny_cache_capacity(self, refusals: usize) -> Self {
        Self { deny_cache: self.deny_cache.map(|cache| cache.capacity(refusals)), ..self }
    }

    /// Calls Redis for every request, also right after it refused one like it, however the deny
    /// cache is set before.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let settings = RedisStore::builder().without_deny_cache();
    /// assert!(settings.connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// ```
    pub fn without_deny_cache(self) -> Self {
        Self { deny_cache: None, ..self }
    }

    /// Takes the time of decisions from a clock, its [`wall`](Clock::wall), instead of the server's `TIME`.
    ///
    /// This is for tests: keys still expire by the server's time, and processes whose clocks differ
    /// do not count alike.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let shared = Arc::clone(&clock);
        self.calls.clock = Some(clock);
        Self { deny_cache: self.deny_cache.map(|cache| cache.clock(move || shared.now())), ..self }
    }

    /// Connects and receives in this runtime, whichever one makes decisions.
    ///
    /// Otherwise each runtime that makes decisions has a connection of its own, and nobody reads the replies while
    /// handlers keep all of its threads busy. Set a runtime that does nothing else where they do: then that delays no
    /// decision, at the price of a hop between threads for each. Both it and the callers' must have their I/O and time
    /// drivers enabled; once it has shut down, decisions fail, and so they do within their timeout while nobody runs it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::runtime::Builder;
    /// use tollgate::RedisStore;
    ///
    /// let limits = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let settings = RedisStore::builder().runtime(limits.handle().clone());
    /// assert!(settings.connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.calls.runtime = Some(runtime);
        self
    }

    /// Makes a store, whose servers need not be connected.
    ///
    /// # Errors
    ///
    /// If a setting is out of bounds.
    pub(super) fn build(self, servers: Servers) -> Result<RedisStore, Error> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || self.prefix.len() > LONGEST_PREFIX || !self.prefix.bytes().all(plain) {
            return Err(Error::invalid(format!(
                "key prefix {:?} is not allowed: give 1 to {LONGEST_PREFIX} printable ASCII characters without braces",
                self.prefix
            )));
        }
        if self.budget.is_zero() || self.connect.timeout.is_zero() {
            return Err(Error::invalid("a timeout of 0 lets nothing through: give at least 1ms"));
        }
        for (what, given, most) in [
            ("connections", self.calls.most, MOST_CONNECTIONS),
            ("checks in a batch", self.calls.batch_size, LARGEST_BATCH),
            ("calls in flight", self.calls.in_flight, MOST_IN_FLIGHT),
        ] {
            if !(1..=most).contains(&given) {
                return Err(Error::invalid(format!("{given} {what} are not allowed: give 1 to {most}")));
            }
        }
        let time = ServerTime::new(self.calls.clock);
        Engine::new(servers, self.prefix, self.budget, time, self.deny_cache).map(RedisStore::new)
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.budget)
            .finish_non_exhaustive()
    }
}
