//! The store on redis-cell: how a decision is made of one command.
//!
//! A decision is one round trip on a connection shared with all others of its runtime. There is
//! nothing to settle, as the module cannot refund, so a receipt that comes back is only logged.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, FromRedisValue, RedisError, ServerErrorKind, cmd};

use super::throttle::{OR_SCRIPTS, Throttle, supports};
use crate::core::decision::{Decision, Source};
use crate::core::error::Kind;
use crate::core::{Error, Key, Quota, Requirement};
use crate::store::evaluate::decided_one;
use crate::store::redis::RedisStore;
use crate::store::redis::in_time;
use crate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, Credentials, MaybeFuture, Receipt, RedisStoreBuilder,
    Settlement, Settling, Store, StoreDecision, StoreId,
};

/// Token buckets (GCRA) that the Redis module
/// [redis-cell](https://crates.io/crates/redis-cell) keeps, for servers that have it: one
/// `CL.THROTTLE` a decision.
///
/// [`RedisStore`](crate::RedisStore) needs no module, can do all this crate does, and is cheaper under
/// load; take this one where scripts are not allowed, or redis-cell is there already. It needs a tokio
/// runtime. Clones share the connection.
///
/// # What it cannot do
///
/// A layer with one of these is refused when it is built ([`Store::capabilities`]), with an error that says
/// what to change:
///
/// - another algorithm than the token bucket, or more than one policy in a layer;
/// - a window that is not whole seconds, or more than 1,000 units a second;
/// - a [reserve](crate::Policy::reserve), and whatever changes what was taken: [`count`](crate::Policy::count),
///   [`metered`](crate::Policy::metered), [`refund_dropped`](crate::Policy::refund_dropped), and so a
///   [`LeaseStore`](crate::store::LeaseStore) around it.
///
/// The quotas of tiers are known only when a request comes. One that cannot be counted is an
/// [invalid](Error::is_invalid) error then, upon which the layer decides as without a store
/// ([`OnFailure`](crate::OnFailure)). [`adjust`](Store::adjust) is such an error too.
///
/// # What is coarser
///
/// - Times are reported in whole seconds, cut off; they are rounded up here. So `Retry-After` is true and never
///   0, but up to a second too long; a [`DenyCache`](crate::store::DenyCache) around it refuses for as long.
/// - The time between two units is cut to whole nanoseconds, and keys end up to 1 ms early. What remains
///   may be reported as one more than there is, if that time is not whole microseconds.
/// - A changed limit keeps the time until the bucket is full, not the units used.
/// - redis-cell 0.2.2 neither replicates its state nor writes it to the append-only file: after a failover
///   all buckets are full.
/// - A look writes what it found once more.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate::Error> {
/// use tollgate::redis_cell::RedisCellStore;
/// use tollgate::{Policy, Quota, RateLimitLayer, key};
///
/// let store = RedisCellStore::connect("redis://127.0.0.1:6379").await?;
/// let policy = Policy::new("api", Quota::token_bucket(100, std::time::Duration::from_secs(60))).key(key::header("x-api-key"));
/// let layer = RateLimitLayer::try_new(store, policy)?;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisCellStore {
    id: StoreId,
    /// Sends the commands, and has the key prefix and the timeout of a decision.
    redis: RedisStore,
}

impl Store for RedisCellStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let check = match checks {
            [check] => check.clone(),
            [] => {
                let decision = Decision::new([], Source::Store);
                return MaybeFuture::Ready(Ok(StoreDecision { decision, receipt: Receipt::new(self.id, []) }));
            }
            several => {
                let text = format!("redis-cell decides one check a request, not {}: give one", several.len());
                return MaybeFuture::Ready(Err(Error::invalid(text + OR_SCRIPTS)));
            }
        };
        let throttle = match Throttle::of(self.redis.cell_key(&check.counter), &check) {
            Ok(throttle) => throttle,
            Err(error) => return MaybeFuture::Ready(Err(error)),
        };
        let Self { id, redis } = self.clone();
        MaybeFuture::pending(async move {
            let reply = redis.command_by(throttle.command(), ask.deadline).await?;
            Ok(decided_one(id, &check, &throttle.step(reply)?))
        })
    }

    /// Does nothing: no policy whose units come back is supported.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() == self.id {
            tracing::debug!(?changes, "redis-cell keeps what was taken as it is");
        }
        MaybeFuture::Ready(Ok(changes.iter().map(|_| ChangeResult::new(0, 0)).collect()))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        if change != Change::Reset {
            let text = "redis-cell neither gives units back nor charges past the limit: reset the counter";
            return MaybeFuture::Ready(Err(Error::invalid(text.to_owned() + OR_SCRIPTS)));
        }
        let (redis, key) = (self.redis.clone(), self.redis.cell_key(counter));
        MaybeFuture::pending(async move {
            let deleted = redis.command(cmd("DEL").arg(key)).await?;
            Ok(ChangeResult::new(u64::from_redis_value(deleted).unwrap_or_default().min(1), 0))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        supports(requirements)?;
        Ok(Capabilities::default().timeout(self.redis.timeout()).id(self.id))
    }
}

impl fmt::Debug for RedisCellStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCellStore").field("redis", &self.redis).finish_non_exhaustive()
    }
}

/// Settings of a [`RedisCellStore`]. Every wait has a limit.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::redis_cell::RedisCellStore;
/// use tollgate::store::Store;
///
/// # async fn run() -> Result<(), tollgate::Error> {
/// let store = RedisCellStore::builder()
///     .prefix("shop")
///     .timeout(Duration::from_millis(50))
///     .connect_timeout(Duration::from_secs(1))
///     .connect("redis://127.0.0.1:6379")
///     .await?;
/// assert_eq!(store.capabilities(&[])?.timeout, Some(Duration::from_millis(50)));
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
    pub fn timeout(self, budget: Duration) -> Self {
        Self { settings: self.settings.timeout(budget) }
    }

    /// Sets how long connecting may take, instead of 500 ms. A decision waits for it no longer than
    /// its timeout; connecting continues meanwhile.
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
        throttle.step(in_time(limit, &address, looked).await??)?;
        Ok(RedisCellStore { id: StoreId::new(), redis })
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
