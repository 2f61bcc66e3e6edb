//! The store on redis-cell: how a decision is made of one command.
//!
//! A decision is one round trip on a connection shared with all others of its runtime. There is
//! nothing to settle, as the module cannot refund, so a receipt that comes back is only logged.

use std::fmt;
use std::sync::Arc;

use deadpool_redis::redis::{FromRedisValue, cmd};

use super::rate::{OR_SCRIPTS, supports};
use super::throttle::Throttle;
use crate::core::decision::{Decision, Source};
use crate::core::{Error, Requirement};
use crate::store::evaluate::decided_one;
use crate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Deadline, Decided, Receipt, RedisStore, Settlement,
    Settling, Store, StoreId,
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
///   [`LeaseStore`](crate::LeaseStore) around it.
///
/// The quotas of tiers are known only when a request comes. One that cannot be counted is an
/// [invalid](Error::is_invalid) error then, upon which the layer decides as without a store
/// ([`OnFailure`](crate::OnFailure)). [`adjust`](Store::adjust) is such an error too.
///
/// # What is coarser
///
/// - Times are reported in whole seconds, cut off; they are rounded up here. So `Retry-After` is true and never
///   0, but up to a second too long; a [`DenyCache`](crate::DenyCache) around it refuses for as long.
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
/// use tollgate::{Policy, Quota, RateLimitLayer, RedisCellStore, key};
///
/// let store = RedisCellStore::connect("redis://127.0.0.1:6379").await?;
/// let policy = Policy::new("api", Quota::gcra(100, std::time::Duration::from_secs(60))).key(key::header("x-api-key"));
/// let layer = RateLimitLayer::try_new(store, policy)?;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisCellStore {
    inner: Arc<Inner>,
}

/// What all clones of a store share.
struct Inner {
    /// The identity that its receipts have.
    id: StoreId,
    /// Sends the commands, and has the key prefix and the budget of a decision.
    redis: RedisStore,
}

impl RedisCellStore {
    /// A store on a server that was tried out.
    pub(super) fn new(redis: RedisStore) -> Self {
        Self { inner: Arc::new(Inner { id: StoreId::new(), redis }) }
    }
}

impl Store for RedisCellStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        let check = match checks {
            [check] => check.clone(),
            [] => {
                let decision = Decision::new([], Source::Store);
                return Answer::Ready(Ok(Decided { decision, receipt: Receipt::new(self.inner.id, []) }));
            }
            several => {
                let text = format!("redis-cell decides one check a request, not {}: give one", several.len());
                return Answer::Ready(Err(Error::invalid(text + OR_SCRIPTS)));
            }
        };
        match Throttle::of(self.inner.redis.cell_key(&check.counter), &check) {
            Ok(throttle) => {
                let inner = Arc::clone(&self.inner);
                Answer::pending(async move { inner.decide(check, throttle, ask.deadline).await })
            }
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    /// Does nothing: no policy whose units come back is supported.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() == self.inner.id {
            tracing::debug!(?changes, "redis-cell keeps what was taken as it is");
        }
        Answer::Ready(Ok(changes.iter().map(|_| Applied::new(0, 0)).collect()))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        if change != Change::Reset {
            let text = "redis-cell neither gives units back nor charges past the limit: reset the counter";
            return Answer::Ready(Err(Error::invalid(text.to_owned() + OR_SCRIPTS)));
        }
        let (redis, key) = (self.inner.redis.clone(), self.inner.redis.cell_key(counter));
        Answer::pending(async move {
            let deleted = redis.command(cmd("DEL").arg(key)).await?;
            Ok(Applied::new(u64::from_redis_value(deleted).unwrap_or_default().min(1), 0))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        supports(requirements)?;
        Ok(Capabilities::default().budget(self.inner.redis.budget()).id(self.inner.id))
    }
}

impl Inner {
    /// Makes the call and works out its decision.
    async fn decide(&self, check: Check, throttle: Throttle, deadline: Deadline) -> Result<Decided, Error> {
        let reply = self.redis.command_by(throttle.command(), deadline).await?;
        Ok(decided_one(self.id, &check, &throttle.step(&check, reply)?))
    }
}

impl fmt::Debug for RedisCellStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCellStore").field("redis", &self.inner.redis).finish_non_exhaustive()
    }
}
