use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use crate::core::Error;
#[cfg(feature = "sentinel")]
use crate::store::Credentials;
use crate::store::redis::connections::Connect;
#[cfg(feature = "tls")]
use crate::store::redis::connections::Tls;
use crate::store::redis::engine::{Engine, ServerTime};
use crate::store::redis::pipeline::Settings;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;
use crate::store::redis::wire::Calls;
use crate::store::{Clock, DenyCache, DenyCacheBuilder};

/// In bytes. The prefix is part of every key in every call.
const MAX_PREFIX: usize = 64;

/// More checks per call are not cheaper, and indexes in a call are one byte.
const MAX_BATCH: usize = 128;

/// With more calls in flight, none would be shared.
const MAX_IN_FLIGHT: usize = 16;

/// More than any server takes.
const MAX_CONNECTIONS: usize = 65_536;

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
/// | [`deny_cache_capacity`](Self::deny_cache_capacity) | 100,000 denials | at least 1 |
///
/// Settings are checked when the store is made. A value out of bounds is an error of `connect` and the other methods
/// that make a store, for which [`Error::is_invalid`](crate::Error::is_invalid) is true.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::Store;
/// use tollgate::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let settings = RedisStore::builder().prefix("api").timeout(Duration::from_millis(50)).lazy();
/// let store = settings.connect("redis://127.0.0.1:6379").await?;
/// assert_eq!(store.capabilities(&[])?.timeout, Some(Duration::from_millis(50)));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct RedisStoreBuilder {
    pub(super) budget: Duration,
    pub(super) calls: Settings,
    /// Without the settings of TLS.
    pub(super) connect: Connect,
    #[cfg(feature = "tls")]
    pub(super) tls: Tls,
    #[cfg(feature = "sentinel")]
    pub(super) primary: Option<Credentials>,
    pub(super) lazy: bool,
    deny_cache: DenyCacheBuilder<()>,
    has_deny_cache: bool,
    /// Whether anything but its clock was set.
    sets_deny_cache: bool,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            budget: Duration::from_millis(100),
            calls: Settings {
                calls: Some(Calls::default()),
                clock: None,
                batch_size: MAX_BATCH,
                in_flight: 2,
                most: 16,
                runtime: None,
            },
            connect: Connect {
                timeout: Duration::from_millis(500),
                prefix: "tollgate".to_owned(),
                ..Connect::default()
            },
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            #[cfg(feature = "sentinel")]
            primary: None,
            lazy: false,
            deny_cache: DenyCache::builder(()),
            has_deny_cache: true,
            sets_deny_cache: false,
        }
    }

    /// Sets the prefix of every key, instead of `tollgate`: 1 to 64 printable ASCII characters without braces.
    ///
    /// Stores with the same prefix on one server share their counters. Give each application its own.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.connect.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of connections to each server, instead of 16: 1 to 65,536.
    ///
    /// It also bounds the connections taken from a [pool](Self::from_pool).
    ///
    /// All decisions of a runtime share one connection to each server. Set at least the number of runtimes that make
    /// decisions, such as with one runtime per thread: any more runtimes share the first connection, and wait for its
    /// runtime. A connection that stopped responding is kept in addition, for up to 10 s, to receive late replies.
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.calls.most = connections;
        self
    }

    /// Sets the maximum number of checks in one call, instead of 128: 1 to 128.
    ///
    /// Concurrent decisions of this process share calls. A single request with more checks is not split. Larger batches
    /// make a flood cheaper. Smaller ones keep the server from being busy for long.
    pub fn batch_size(mut self, checks: usize) -> Self {
        self.calls.batch_size = checks;
        self
    }

    /// Sets the maximum number of calls in flight on a connection, instead of 2: 1 to 16.
    ///
    /// While that many calls are in flight, further decisions wait and share the next call, unless there are few: up to
    /// four decisions at once are sent in a call each. With a maximum of one, they wait too. Then concurrent decisions are
    /// up to half a round trip later, and larger batches save the server some work. With more than two, batches are
    /// smaller.
    pub fn calls_in_flight(mut self, calls: usize) -> Self {
        self.calls.in_flight = calls;
        self
    }

    /// Calls a library of Redis Functions instead of scripts, for slightly more checks per second.
    ///
    /// It needs Redis 7 or Valkey, and a user who may `FUNCTION LOAD`.
    ///
    /// The library is named by its content and is never replaced, so that different versions of this crate can share a
    /// server. It stays in the server's data until `FUNCTION DELETE`.
    pub fn functions(mut self) -> Self {
        self.calls.calls = Some(Calls::Functions);
        self
    }

    /// Sends [commands](RedisStore::command) only.
    ///
    /// Use it for users who may not run scripts, or servers that have none. The Lua arithmetic of new connections is
    /// not checked, and a layer or limiter on the store is an error.
    pub fn without_scripts(mut self) -> Self {
        self.calls.calls = None;
        self
    }

    /// Sets the timeout of one decision, instead of 100 ms.
    ///
    /// It begins with the first poll of the decision, and includes waiting for a connection, sending, and receiving the
    /// reply. A decision that takes longer is an error, for which [`Error::is_timeout`](crate::Error::is_timeout) is
    /// true. Zero is an error.
    pub fn timeout(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets the timeout of connecting to a server, instead of 500 ms.
    ///
    /// With sentinels, which are called first, the timeout is eight times as long. The check that a new server's Lua
    /// arithmetic is that of Redis may then take twice this time. Zero is an error.
    ///
    /// A decision does not wait longer than its timeout for a connection. Connecting continues after that.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Sets the maximum TTL of a cached denial, instead of 1 s: see [`DenyCache`](crate::store::DenyCache).
    ///
    /// A refund or a reset by another process may go unnoticed for that long. Zero is an error: use
    /// [`without_deny_cache`](Self::without_deny_cache).
    pub fn deny_cache_max_ttl(self, cap: Duration) -> Self {
        Self { deny_cache: self.deny_cache.max_ttl(cap), sets_deny_cache: true, ..self }
    }

    /// Sets the maximum number of cached denials, instead of 100,000.
    ///
    /// Zero is an error: use [`without_deny_cache`](Self::without_deny_cache).
    pub fn deny_cache_capacity(self, denials: usize) -> Self {
        Self { deny_cache: self.deny_cache.capacity(denials), sets_deny_cache: true, ..self }
    }

    /// Calls Redis for every request, even right after a denial.
    ///
    /// Combined with a setting of the deny cache, this is an error.
    pub fn without_deny_cache(self) -> Self {
        Self { has_deny_cache: false, ..self }
    }

    /// Makes `connect`, `connect_cluster` and `connect_sentinel` return a store without calling a server.
    ///
    /// So a service starts while Redis is unavailable. Until Redis is up, the layer decides as [set](crate::OnFailure).
    ///
    /// The first decision connects. Wrong passwords, missing permissions and servers that are not Redis are found then,
    /// as failures of decisions. Settings and URLs are still checked at once. The future is ready at its first poll,
    /// and needs no runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let store = RedisStore::builder().lazy().connect("redis://127.0.0.1:6379").await?;
    /// # let _ = store;
    /// let error = RedisStore::builder().lazy().connect("127.0.0.1:6379").await.expect_err("it is no URL");
    /// assert!(error.is_invalid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy(self) -> Self {
        Self { lazy: true, ..self }
    }

    /// Makes decisions at the time of a clock, its [`wall`](Clock::wall), instead of the server's `TIME`.
    ///
    /// Use it only in tests, because keys still expire by the server's time, and processes whose clocks differ do not
    /// count alike.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let shared = Arc::clone(&clock);
        self.calls.clock = Some(clock);
        Self { deny_cache: self.deny_cache.clock(move || shared.now()), ..self }
    }

    /// Connects and receives in this runtime, whichever runtime makes decisions.
    ///
    /// Otherwise each runtime that makes decisions has its own connection, whose replies are not read while handlers
    /// keep all of the runtime's threads busy. If your handlers keep all threads busy, set a runtime that does nothing
    /// else. Then busy handlers delay no decision, but each decision costs a hop between threads. Both runtimes must
    /// have their I/O and time drivers enabled. Once the set runtime has shut down, decisions fail. While its threads
    /// do not run, decisions fail within their timeout. Threads outside of a runtime can make decisions then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::runtime::Builder;
    /// use tollgate::RedisStore;
    ///
    /// let limits = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let settings = RedisStore::builder().runtime(limits.handle().clone());
    /// # let _ = settings;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.calls.runtime = Some(runtime);
        self
    }

    pub(super) fn build(self, servers: Servers) -> Result<RedisStore, Error> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.connect.prefix.is_empty()
            || self.connect.prefix.len() > MAX_PREFIX
            || !self.connect.prefix.bytes().all(plain)
        {
            return Err(Error::invalid(format!(
                "key prefix {:?} is not allowed: use 1 to {MAX_PREFIX} printable ASCII characters without braces",
                self.connect.prefix
            )));
        }
        if self.budget.is_zero() || self.connect.timeout.is_zero() {
            return Err(Error::invalid("a timeout of 0 lets nothing through: it must be at least 1ms"));
        }
        for (what, given, most) in [
            ("connections", self.calls.most, MAX_CONNECTIONS),
            ("checks in a batch", self.calls.batch_size, MAX_BATCH),
            ("calls in flight", self.calls.in_flight, MAX_IN_FLIGHT),
        ] {
            if !(1..=most).contains(&given) {
                return Err(Error::invalid(format!("{given} {what} are not allowed: use 1 to {most}")));
            }
        }
        if self.sets_deny_cache && !self.has_deny_cache {
            let text = "a store without_deny_cache has no max_ttl or capacity of one";
            return Err(Error::invalid(text));
        }
        let time = ServerTime::new(self.calls.clock);
        let deny_cache = self.has_deny_cache.then_some(self.deny_cache);
        Engine::new(servers, self.connect.prefix, self.budget, time, deny_cache).map(RedisStore::with_engine)
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.connect.prefix)
            .field("timeout", &self.budget)
            .finish_non_exhaustive()
    }
}
