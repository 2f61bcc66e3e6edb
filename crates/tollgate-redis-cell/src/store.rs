use std::error::Error as _;
use std::time::Duration;

use tokio::time::timeout;
use tollgate::deadpool_redis::redis::{ErrorKind, FromRedisValue, RedisError, ServerErrorKind, Value, cmd};
use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, ReceiptItem, Requirement,
    Settlement, Settling, Store, StoreDecision, StoreId,
};
use tollgate::{Decision, Error, Key, Quota, RedisStore, Source};

use crate::throttle::{OR_SCRIPTS, Throttle, supports};

/// A store on the Redis module redis-cell, which keeps token buckets (GCRA): one `CL.THROTTLE` per decision.
///
/// Commands use the connections of a [`RedisStore`], which has the settings: the prefix of keys, the timeout,
/// credentials, TLS. Clones share the connections.
///
/// # Unsupported policies
///
/// A layer or limiter with one of these is an error when it is built ([`Store::capabilities`]):
///
/// - another algorithm than the token bucket, or more than one policy;
/// - a window that is not whole seconds, or more than 1,000 units a second;
/// - a [ban](tollgate::Policy::ban), a [reserve](tollgate::Policy::reserve), and policies that refund or charge later:
///   [`count`](tollgate::Policy::count), [`metered`](tollgate::Policy::metered),
///   [`refund_dropped`](tollgate::Policy::refund_dropped), and so a [`LeaseStore`](tollgate::store::LeaseStore) around
///   this store.
///
/// The quotas of tiers are known only when a request arrives. If the module cannot count such a quota, the decision
/// fails with an [invalid](Error::is_invalid) error, and the layer decides like without a store
/// ([`OnFailure`](tollgate::OnFailure)). [`adjust`](Store::adjust) resets counters, and cannot refund or charge.
///
/// # Precision
///
/// - The module reports whole seconds, rounded down, which this store rounds up. So `Retry-After` is never too short
///   and never 0, but up to a second too long. A [`DenyCache`](tollgate::store::DenyCache) around this store denies for
///   as long.
/// - The time between two units is cut to whole nanoseconds, and keys expire up to 1 ms early. If that time is not
///   whole microseconds, the remaining units may be one too many.
/// - A changed limit keeps the time until the bucket is full, not the units used.
/// - redis-cell 0.2.2 neither replicates its state nor writes it to the append-only file: after a failover all buckets
///   are full.
/// - A check of cost 0 writes the state that it found.
#[derive(Clone, Debug)]
pub struct RedisCellStore {
    id: StoreId,
    redis: RedisStore,
}

impl RedisCellStore {
    /// Creates a store on the module of a Redis server, after a peek at a bucket shows that the module is loaded.
    ///
    /// # Permissions
    ///
    /// The Redis ACL user needs only these permissions, if the `RedisStore` is
    /// [`without_scripts`](tollgate::store::RedisStoreBuilder::without_scripts) and has this prefix:
    ///
    /// ```text
    /// ACL SETUSER limiter on >password ~tollgate:* +cl.throttle +del
    /// ```
    ///
    /// A database in the URL needs `+select`.
    ///
    /// # Errors
    ///
    /// If Redis does not reply within the timeout of the `RedisStore`, which includes connecting if it is lazy.
    /// [`is_store`](Error::is_store) if the server has no redis-cell, or the user may not call it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    /// use tollgate_redis_cell::RedisCellStore;
    ///
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// let redis = RedisStore::builder().prefix("shop").without_scripts().connect("redis://127.0.0.1:6379").await?;
    /// let store = RedisCellStore::connect(redis).await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(redis: RedisStore) -> Result<Self, Error> {
        let store = Self { id: StoreId::new(), redis };
        // No request has this counter.
        let counter = Counter::new("connect".try_into()?, Key::new("connect", ""), Quota::per_second(1));
        drop(store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await.map_err(explained)?);
        Ok(store)
    }

    /// `<prefix>:{<key>}:<policy>:1c<seconds>s`. No state of a `RedisStore` has the letter `c`, so both can use one
    /// server.
    fn key(&self, counter: &Counter) -> String {
        let (prefix, key, policy) = (self.redis.prefix(), counter.key(), counter.policy());
        format!("{prefix}:{{{key}}}:{policy}:1c{}s", counter.quota().window().as_secs())
    }
}

impl Store for RedisCellStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let check = match checks {
            [check] => check.clone(),
            [] => {
                let decision = Decision::new([], Source::Store);
                return MaybeFuture::Ready(Ok(StoreDecision::new(decision, Receipt::new(self.id, []))));
            }
            several => {
                let text = format!("redis-cell decides one check a request, not {}", several.len());
                return MaybeFuture::Ready(Err(Error::invalid(text + OR_SCRIPTS)));
            }
        };
        let throttle = match Throttle::new(self.key(&check.counter), check) {
            Ok(throttle) => throttle,
            Err(error) => return MaybeFuture::Ready(Err(error)),
        };
        let Self { id, redis } = self.clone();
        MaybeFuture::pending(async move {
            let limit = ask.remaining().unwrap_or(Duration::MAX);
            let late = |_| Error::timeout("redis-cell did not decide by the deadline");
            let reply =
                timeout(limit, redis.command_checked(&throttle.command(), is_decision)).await.map_err(late)??;
            let outcome = throttle.outcome(reply)?;
            let Check { counter, cost, .. } = throttle.check;
            let units = if outcome.is_allowed() { cost } else { 0 };
            let decision = Decision::new([outcome], Source::Store);
            let taken = decision.is_allowed().then(|| ReceiptItem::new(counter, units, 0));
            Ok(StoreDecision::new(decision, Receipt::new(id, taken)))
        })
    }

    /// Does nothing, because no policy that refunds is supported.
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
        let (redis, key) = (self.redis.clone(), self.key(counter));
        MaybeFuture::pending(async move {
            let deleted = redis.command_checked(cmd("DEL").arg(key), |reply| matches!(reply, Value::Int(_))).await?;
            Ok(ChangeResult::new(u64::from_redis_value(deleted).unwrap_or_default().min(1), 0))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        supports(requirements)?;
        Ok(self.redis.capabilities(&[])?.id(self.id))
    }
}

fn is_decision(reply: &Value) -> bool {
    matches!(reply, Value::Array(numbers) if numbers.len() == 5)
}

fn explained(error: Error) -> Error {
    let Some(cause) = error.source().and_then(|source| source.downcast_ref::<RedisError>()) else { return error };
    let text = if cause.detail().is_some_and(|detail| detail.contains("unknown command")) {
        "this Redis has no CL.THROTTLE: load the module redis-cell (redis-server --loadmodule /path/to/libredis_cell.so, \
         or a line loadmodule in its configuration), or take a RedisStore"
    } else if cause.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
        "the user of this Redis may not call CL.THROTTLE on these keys: allow it by ACL SETUSER"
    } else {
        return error;
    };
    Error::store(text, error)
}
