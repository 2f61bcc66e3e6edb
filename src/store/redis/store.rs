//! The trait [`Store`] on top of the engine: without a cache, and in a deny cache, as the rest of the crate sees it.
//!
//! Checks come in; a decision goes out, from one script call, or, on a Cluster, from one call for each slot
//! (`apart.rs`).

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use deadpool_redis::redis::{Cmd, Value};

use super::engine::Engine;
use super::servers::PendingReply;
use super::wire::{MOST_CHECKS, Request, applied_change};
use crate::core::decision::{Decision, Source};
use crate::core::{Checks, Error, kept};
use crate::store::bans::{changed, size, with_bans};
use crate::store::deny::Called;
use crate::store::evaluate::of_any;
use crate::store::{
    Ask, BreakerState, Capabilities, Change, ChangeResult, Check, Counter, Deadline, DenyCache, MaybeFuture, Receipt,
    Requirement, Settlement, Settling, Store, StoreDecision,
};

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides over all policies of a request, by the server's clock; concurrent requests share calls. The store
/// connects to one server, to a Cluster (`RedisStoreBuilder::connect_cluster` describes what differs there), or to the
/// primary that sentinels name. It caches refusals for up to 1 s, as a [`DenyCache`](crate::store::DenyCache) does.
///
/// The store survives restarts of the server: a decision that fails meanwhile returns an error within its timeout (100
/// ms unless it is [set](crate::store::RedisStoreBuilder::timeout)), and later ones connect again. Clones share
/// connections and cached refusals. Decisions need a tokio runtime with I/O and time enabled.
///
/// Give each service a [prefix](crate::store::RedisStoreBuilder::prefix) of its own, as in
/// `RedisStore::builder().prefix("shop")`. Services with one prefix count together wherever names, keys and windows are
/// the same, and no warning shows that, as each sees only its own layers.
///
/// A decision has at most 255 checks: one for each policy that applies. Keys in Redis begin with `tollgate:` unless a
/// [prefix](crate::store::RedisStoreBuilder::prefix) is set, and each has a time to live.
///
/// # Cancellation
///
/// A decision that is dropped before it was sent takes nothing. One that was sent keeps what it
/// takes. One that times out is an error; if its reply still comes, what it took is refunded.
///
/// # Examples
///
/// Connecting at once detects a wrong password or a server that is not Redis:
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate::Error> {
/// use tollgate::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
///
/// A store that is [lazy](crate::store::RedisStoreBuilder::lazy) connects with its first decision, so that a service starts
/// before Redis does.
#[derive(Clone)]
pub struct RedisStore {
    store: DenyCache<RawRedisStore>,
}

impl RedisStore {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let refusals = Arc::clone(&engine.refusals);
        Self { store: DenyCache::around(RawRedisStore(engine), refusals) }
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.store.get_ref().0
    }

    /// Returns the primaries of a Cluster, as `host:port` and sorted by that, and the state of each
    /// one's circuit breaker.
    ///
    /// It is empty for one server, and for the primary that sentinels name: the circuit breaker is
    /// then [that of the layer](crate::LiveLayer::breaker_state). It is also empty until the
    /// first decision of a [lazy](crate::store::RedisStoreBuilder::lazy) store.
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.engine().servers.breakers()
    }

    /// Sends a command, over the store's own connections and within its timeout: once, to the server that has its key.
    ///
    /// The key is the command's first argument, or the first key of a script or function.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no connection, or the server refuses the command: then the
    /// [source](std::error::Error::source) is its error. [Invalid](Error::is_invalid) is a command that changes the
    /// connection, has no reply of its own or waits for others, as `SELECT`, `SUBSCRIBE` and `BLPOP` do: decisions are
    /// on their way on the same connection.
    ///
    /// # Cancellation
    ///
    /// The command may have been sent.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::RedisStore;
    /// use tollgate::deadpool_redis::redis::cmd;
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    /// let life = store.command(cmd("PTTL").arg("tollgate:{user:ada}:api:2")).await?;
    /// # let _ = life;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn command(&self, command: &Cmd) -> Result<Value, Error> {
        self.engine().command(command.clone(), Deadline::none()).await
    }

    /// Returns what every key of the store starts with, for keys of your own beside them:
    /// [`prefix`](crate::store::RedisStoreBuilder::prefix).
    pub fn prefix(&self) -> &str {
        &self.engine().prefix
    }

    /// Returns how many requests were refused without calling Redis, as it had just refused one
    /// like them. It is 0 [without a deny cache](crate::store::RedisStoreBuilder::without_deny_cache), and counts
    /// since the store was made, over all of its clones.
    pub fn denied_from_cache(&self) -> u64 {
        self.store.denied_from_cache()
    }
}

impl Store for RedisStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.store.decide_by(checks, ask.mode, |raw| raw.call(checks, ask.deadline))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.store.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.store.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.store.capabilities(requirements)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.engine().prefix)
            .field("timeout", &self.engine().budget)
            .finish_non_exhaustive()
    }
}

/// A store that calls Redis for each decision.
#[derive(Clone)]
struct RawRedisStore(Arc<Engine>);

impl RawRedisStore {
    /// Decides by a call, of which nothing is sent before the first poll. Without checks there is none, and too many are
    /// refused.
    fn call(&self, checks: &[Check], deadline: Deadline) -> Called<PendingDecision> {
        let (Self(engine), size) = (self, size(checks));
        if checks.is_empty() {
            let receipt = Receipt::empty(engine.id);
            return Called::Ready(Ok(StoreDecision { decision: Decision::new([], Source::Store), receipt }));
        }
        if size > MOST_CHECKS {
            let text = format!("{size} checks and bans in one decision are too many: give at most {MOST_CHECKS}");
            return Called::Ready(Err(Error::invalid(text)));
        }
        let checks = kept(checks);
        let way = if !engine.servers.keep_together(&checks) && engine.is_apart(&checks) {
            let (engine, checks) = (Arc::clone(engine), checks.clone());
            DecideFuture::Apart(Box::pin(async move { engine.decide_apart(checks, deadline).await }))
        } else {
            let request = Request::new(&engine.prefix, &with_bans(&checks), || engine.time.now_ms());
            DecideFuture::Together(engine.call(request, deadline))
        };
        Called::Pending(PendingDecision { engine: Arc::clone(engine), checks, way })
    }
}

/// The wait for a decision, which is returned with its checks.
struct PendingDecision {
    engine: Arc<Engine>,
    checks: Checks,
    way: DecideFuture,
}

enum DecideFuture {
    /// All keys are in one slot.
    Together(PendingReply),
    Apart(Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>),
}

impl Future for PendingDecision {
    type Output = (Checks, Result<StoreDecision, Error>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { engine, checks, way } = &mut *self;
        let decided = match way {
            DecideFuture::Together(asking) => match ready!(Pin::new(asking).poll(cx)) {
                Ok(part) => engine.decided(checks, part),
                Err(no_reply) => Err(engine.refund_late(checks, no_reply)),
            },
            DecideFuture::Apart(deciding) => ready!(deciding.as_mut().poll(cx)),
        };
        Poll::Ready((mem::take(checks), decided))
    }
}

impl Store for RawRedisStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        match self.call(checks, ask.deadline) {
            Called::Ready(decided) => MaybeFuture::Ready(decided),
            Called::Pending(call) => MaybeFuture::pending(async move { call.await.1 }),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.0.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let (taken, engine) = (of_any(counter), Arc::clone(&self.0));
        let (taken, change) = changed(&taken, change);
        let request = Request::adjustment(&engine.prefix, &[], &taken, change, || engine.time.now_ms());
        let (asking, taken) = (engine.call(request, Deadline::none()), taken.into_owned());
        MaybeFuture::pending(async move {
            // There is nothing to refund if the reply is late.
            let part = asking.await.map_err(|no_reply| no_reply.error)?.script()?;
            let now_us = part.now_us();
            applied_change(&taken, change, part).inspect_err(|_| engine.time.learn(now_us))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        if self.0.servers.settings().calls.is_none() && !requirements.is_empty() {
            return Err(Error::invalid("a RedisStore without_scripts decides no policies: leave without_scripts out"));
        }
        let capabilities = Capabilities::with_few_bans(requirements, MOST_CHECKS)?;
        Ok(capabilities.timeout(self.0.budget).id(self.0.id))
    }
}
