//! Settings of a Redis store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use crate::core::Error;
use crate::store::redis::batch::{Plan, Settings};
use crate::store::redis::connections::{Dialer, OwnTasks, Provider, Tls};
use crate::store::redis::engine::Engine;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;
use crate::store::redis::wire::Calls;
use crate::store::{Clock, DenyCacheBuilder};

/// The longest prefix of keys, in bytes.
const LONGEST_PREFIX: usize = 64;

/// The most checks of calls that leave together; more are not cheaper by the check.
const LARGEST_BATCH: usize = 128;

/// Settings of a [`RedisStore`]. Every wait is bounded.
#[must_use]
pub struct RedisStoreBuilder {
    pub(in crate::store::redis) prefix: String,
    pub(super) pool_size: usize,
    pub(super) batch_size: usize,
    pub(super) calls: Calls,
    pub(in crate::store::redis) budget: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) runtime: Option<Runtime>,
    pub(super) deny_cache: Option<DenyCacheBuilder>,
    pub(super) tls: Tls,
    pub(super) credentials: Option<Provider>,
    pub(super) dialer: Option<Dialer>,
    /// Where both run.
    pub(super) own_tasks: OwnTasks,
    #[cfg(feature = "sentinel")]
    pub(super) primary: deadpool_redis::RedisConnectionInfo,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            pool_size: 16,
            batch_size: LARGEST_BATCH,
            calls: Calls::default(),
            budget: Duration::from_millis(100),
            connect_timeout: Duration::from_millis(500),
            clock: None,
            runtime: None,
            deny_cache: Some(DenyCacheBuilder::new()),
            tls: Tls::default(),
            credentials: None,
            dialer: None,
            own_tasks: OwnTasks::default(),
            #[cfg(feature = "sentinel")]
            primary: deadpool_redis::RedisConnectionInfo::default(),
        }
    }

    /// Sets what every key starts with, instead of `tollgate`.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how many connections there are to each server at most, instead of 16.
    ///
    /// All decisions of a runtime share one pipelined connection to a server. Where more runtimes ask, as
    /// with one for each thread of many, those beyond so many share the connection of another one, and
    /// wait for that runtime: set no less than there are. A connection that went silent is kept for up to
    /// 10 s besides, for answers that come late.
    pub fn pool_size(self, connections: usize) -> Self {
        Self { pool_size: connections, ..self }
    }

    /// Sets how many checks one call decides at most, instead of 128: concurrent decisions of this
    /// process share calls. A single request with more checks is not split.
    ///
    /// More make a flood cheaper; fewer keep the server from being busy for long.
    pub fn batch_size(self, checks: usize) -> Self {
        Self { batch_size: checks, ..self }
    }

    /// Calls a library of Redis Functions instead of scripts, for some more checks a second.
    /// It takes Redis 7 or Valkey, and a user who may `FUNCTION LOAD`.
    ///
    /// The library is named by its content and is never replaced, so that different versions of this
    /// crate can share a server; it stays in the server's data until `FUNCTION DELETE`.
    pub fn functions(self) -> Self {
        Self { calls: Calls::Functions, ..self }
    }

    /// Sets how long one decision may take, instead of 100 ms: waiting for a connection, sending,
    /// and the answer.
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets how long connecting may take, instead of 500 ms, and eight times that where sentinels are asked
    /// first; then the server may take twice that to show that it counts as Redis does. A decision does not wait longer than its budget for it; connecting goes on meanwhile.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// Sets for how long a refusal is answered without asking Redis, at most, instead of 1 s: see
    /// [`DenyCache`](crate::DenyCache).
    pub fn deny_cache_cap(self, cap: Duration) -> Self {
        Self { deny_cache: self.deny_cache.map(|cache| cache.cap(cap)), ..self }
    }

    /// Sets how many refusals are remembered at most, instead of 100,000.
    pub fn deny_cache_capacity(self, refusals: usize) -> Self {
        Self { deny_cache: self.deny_cache.map(|cache| cache.capacity(refusals)), ..self }
    }

    /// Asks Redis about every request, also right after it refused one like it, however the deny
    /// cache is set.
    pub fn without_deny_cache(self) -> Self {
        Self { deny_cache: None, ..self }
    }

    /// Takes the time of decisions from a clock instead of the server's `TIME`.
    ///
    /// This is for tests: keys still expire by the server's time, and processes whose clocks differ
    /// do not count alike.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let shared = Arc::clone(&clock);
        let deny_cache = self.deny_cache.map(|cache| cache.with_clock(move || shared.now()));
        Self { clock: Some(clock), deny_cache, ..self }
    }

    /// Connects, sends and receives on this runtime, whichever one asks.
    ///
    /// Otherwise each runtime that asks has a connection of its own. Set a runtime that does nothing
    /// else where handlers keep all threads of theirs busy for long: what they do then delays no
    /// decision, for a few microseconds more each. Both it and those that ask must have their I/O and time
    /// drivers enabled; once it has shut down, decisions fail.
    pub fn runtime(self, runtime: Runtime) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Checks what every store on Redis is set to.
    pub(in crate::store::redis) fn check(&self) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || self.prefix.len() > LONGEST_PREFIX || !self.prefix.bytes().all(plain) {
            return Err(Error::invalid(format!(
                "key prefix {:?} is not allowed: give 1 to {LONGEST_PREFIX} printable ASCII characters without braces",
                self.prefix
            )));
        }
        if self.budget.is_zero() || self.connect_timeout.is_zero() {
            return Err(Error::invalid("a timeout of 0 lets nothing through: give at least 1ms"));
        }
        Ok(())
    }

    /// How lanes are made to servers.
    pub(super) fn plan(&self) -> Plan {
        let settings = Settings { calls: self.calls, clock: self.clock.clone(), batch_size: self.batch_size };
        Plan { settings: Arc::new(settings), most: self.pool_size, runtime: self.runtime.clone() }
    }

    /// Makes a store once all settings are checked.
    pub(super) fn build(self, servers: Servers) -> Result<RedisStore, Error> {
        self.engine(servers).map(RedisStore::new)
    }

    /// What a store does its work with, once all settings are checked.
    pub(super) fn engine(self, servers: Servers) -> Result<Arc<Engine>, Error> {
        self.check()?;
        if !(1..=LARGEST_BATCH).contains(&self.batch_size) {
            return Err(Error::invalid(format!(
                "a batch of {} checks is not allowed: give 1 to {LARGEST_BATCH}",
                self.batch_size
            )));
        }
        Engine::new(servers, self.prefix, self.budget, self.deny_cache)
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
