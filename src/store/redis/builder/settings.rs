//! Settings of a Redis store that do not depend on what it connects to.
//!
//! Each has a default, and is checked when a store is made, not when it is set: so the order of the
//! options does not matter.

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
    pub(super) primary: Option<Credentials>,
    /// Whether the first decision connects, and nothing before.
    pub(super) lazy: bool,
    deny_cache: DenyCacheBuilder<()>,
    has_deny_cache: bool,
    /// Whether anything but the clock was set of the deny cache.
    sets_deny_cache: bool,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            budget: Duration::from_millis(100),
            calls: Settings {
                calls: Some(Calls::default()),
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
            primary: None,
            lazy: false,
            deny_cache: DenyCache::builder(()),
            has_deny_cache: true,
            sets_deny_cache: false,
        }
    }

    /// Sets what every key starts with, instead of `tollgate`: 1 to 64 printable ASCII characters
    /// without braces. Stores with the same prefix on one server share their counters; give each
    /// application its own.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how many connections there are to each server at most, instead of 16: 1 to 65,536. Of a
    /// [pool](Self::from_pool) the store takes no more.
    ///
    /// All decisions of a runtime share one connection to each server. Set at least as many as there are runtimes that
    /// make decisions, such as with one runtime per thread: any more runtimes share the first connection, and wait for
    /// its runtime. A connection that stopped responding is kept in addition, for up to 10 s, to receive late replies.
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.calls.most = connections;
        self
    }

    /// Sets how many checks one call decides at most, instead of 128: 1 to 128. Concurrent
    /// decisions of this process share calls. A single request with more checks is not split.
    ///
    /// More make a flood cheaper; fewer keep the server from being busy for long.
    pub fn batch_size(mut self, checks: usize) -> Self {
        self.calls.batch_size = checks;
        self
    }

    /// Sets how many calls are sent on a connection before the reply to the first, instead of 2: 1 to 16. Decisions that
    /// come meanwhile wait, and share the next call.
    ///
    /// With one, decisions that come together are up to half a round trip later, and larger batches save the server some
    /// work; more than two make batches smaller.
    pub fn calls_in_flight(mut self, calls: usize) -> Self {
        self.calls.in_flight = calls;
        self
    }

    /// Calls a library of Redis Functions instead of scripts, for some more checks a second.
    /// It takes Redis 7 or Valkey, and a user who may `FUNCTION LOAD`.
    ///
    /// The library is named by its content and is never replaced, so that different versions of this
    /// crate can share a server; it stays in the server's data until `FUNCTION DELETE`.
    pub fn functions(mut self) -> Self {
        self.calls.calls = Some(Calls::Functions);
        self
    }

    /// Sends [commands](RedisStore::command) only, for users who may not run scripts or servers that have none: new
    /// connections are not checked for their Lua arithmetic, and a layer or limiter on the store is an error.
    pub fn without_scripts(mut self) -> Self {
        self.calls.calls = None;
        self
    }

    /// Sets how long one decision may take, instead of 100 ms: waiting for a connection, sending,
    /// and receiving the reply. A decision that takes longer is an error, for which
    /// [`Error::is_timeout`](crate::Error::is_timeout) is true. Zero is refused.
    pub fn timeout(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets how long connecting to a server may take, instead of 500 ms; with sentinels, which are called first, eight
    /// times as long. A new server may then take twice this time for the check that its Lua arithmetic is that of
    /// Redis. Zero is refused.
    ///
    /// A decision does not wait longer than its timeout for a connection; connecting goes on
    /// meanwhile.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Sets for how long a refusal is cached at most, instead of 1 s: see
    /// [`DenyCache`](crate::store::DenyCache). For so long a refund or a reset by another process may go
    /// unnoticed. Zero is refused: see [`without_deny_cache`](Self::without_deny_cache).
    pub fn deny_cache_max_ttl(self, cap: Duration) -> Self {
        Self { deny_cache: self.deny_cache.max_ttl(cap), sets_deny_cache: true, ..self }
    }

    /// Sets how many refusals are cached at most, instead of 100,000. Zero is refused: see
    /// [`without_deny_cache`](Self::without_deny_cache).
    pub fn deny_cache_capacity(self, refusals: usize) -> Self {
        Self { deny_cache: self.deny_cache.capacity(refusals), sets_deny_cache: true, ..self }
    }

    /// Calls Redis for every request, also right after it refused one like it. A deny cache is an error then if it is
    /// set, too.
    pub fn without_deny_cache(self) -> Self {
        Self { has_deny_cache: false, ..self }
    }

    /// Makes `connect`, `connect_cluster` and `connect_sentinel` return a store without calling a server, so that a
    /// service starts while Redis is unavailable: until it is there, the layer decides as it is
    /// [set to](crate::OnFailure).
    ///
    /// The first decision connects. Passwords, permissions and servers that are no Redis are found then, as failures of
    /// decisions; settings and URLs are checked at once all the same. The future is ready when it is polled first, and
    /// needs no runtime.
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

    /// Takes the time of decisions from a clock, its [`wall`](Clock::wall), instead of the server's `TIME`.
    ///
    /// This is for tests: keys still expire by the server's time, and processes whose clocks differ
    /// do not count alike.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let shared = Arc::clone(&clock);
        self.calls.clock = Some(clock);
        Self { deny_cache: self.deny_cache.clock(move || shared.now()), ..self }
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
    /// # let _ = settings;
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
        if self.sets_deny_cache && !self.has_deny_cache {
            let text = "a store without_deny_cache has no max_ttl or capacity of one: leave out either";
            return Err(Error::invalid(text));
        }
        let time = ServerTime::new(self.calls.clock);
        let deny_cache = self.has_deny_cache.then_some(self.deny_cache);
        Engine::new(servers, self.prefix, self.budget, time, deny_cache).map(RedisStore::new)
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
