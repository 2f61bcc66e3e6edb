//! [`Store`] on top of the engine, raw and with a deny cache.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use deadpool_redis::redis::{Cmd, Value};

use super::engine::Engine;
use super::pipeline::Timeout;
use super::servers::PendingReply;
use super::wire::{MAX_CHECKS, Request, applied_change};
use crate::core::decision::{Decision, Source};
use crate::core::{Checks, Error, kept};
use crate::store::bans::{changed, size};
use crate::store::deny::Called;
use crate::store::evaluate::untaken;
use crate::store::{
    Ask, BreakerState, Capabilities, Change, ChangeResult, Check, Counter, Deadline, DenyCache, MaybeFuture, Receipt,
    Requirement, Settlement, Settling, Store, StoreDecision,
};

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides over all policies of a request, by the server's clock. Concurrent requests share calls. The store
/// connects to one server, to a Cluster (`RedisStoreBuilder::connect_cluster` describes the differences), or to the
/// primary that sentinels name. It caches denials for up to 1 s, like a [`DenyCache`](crate::store::DenyCache).
///
/// The store survives restarts of the server: during the restart, a decision returns an error within its timeout (100
/// ms unless it is [set](crate::store::RedisStoreBuilder::timeout)), and later decisions connect again. Clones share
/// connections and cached denials. Decisions need a tokio runtime with I/O and time enabled.
///
/// Give each service its own [prefix](crate::store::RedisStoreBuilder::prefix), such as
/// `RedisStore::builder().prefix("shop")`. Services with one prefix share counters of equal name, key and window,
/// without a warning, because each service sees only its own layers.
///
/// A decision has at most 255 checks: one for each policy that applies. Keys in Redis begin with `tollgate:` unless a
/// [prefix](crate::store::RedisStoreBuilder::prefix) is set, and each has a TTL.
///
/// # Cancellation
///
/// A decision that is dropped before it was sent takes nothing. After it was sent, its units stay taken. A decision
/// that times out is an error. If its reply arrives later, its units are refunded.
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
/// A [lazy](crate::store::RedisStoreBuilder::lazy) store connects with its first decision, so that a service starts
/// before Redis does.
#[derive(Clone)]
pub struct RedisStore {
    store: DenyCache<RawRedisStore>,
}

impl RedisStore {
    pub(super) fn with_engine(engine: Arc<Engine>) -> Self {
        let refusals = Arc::clone(&engine.refusals);
        Self { store: DenyCache::around(RawRedisStore(engine), refusals) }
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.store.get_ref().0
    }

    /// Returns each primary of a Cluster with the state of its circuit breaker, sorted by `host:port`.
    ///
    /// It is empty for one server, and for the primary that sentinels name, which only have the
    /// [layer's](crate::LiveLayer::breaker_state) circuit breaker. It is also empty until the first decision of a
    /// [lazy](crate::store::RedisStoreBuilder::lazy) store.
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.engine().servers.breakers()
    }

    /// Sends a command once, over the store's own connections and within its timeout, to the server that has its key.
    ///
    /// The key is the command's first argument, or the first key of a script or function.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, there is no connection, or the server refuses the command. The server's error is
    /// the [source](std::error::Error::source). [Invalid](Error::is_invalid) are commands that change the connection,
    /// have no reply of their own, or block, such as `SELECT`, `SUBSCRIBE` and `BLPOP`, because decisions use the same
    /// connection. A reply of more than 64 MiB, or about 100,000 values, ends the connection.
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
        self.engine().command(command.clone(), None).await
    }

    /// Sends a command like [`command`](Self::command), and accepts only replies for which `is_reply` returns `true`.
    ///
    /// Any other reply ends the connection, because those after it may be replies to other commands, too. Errors of the
    /// server are always accepted. `is_reply` runs while the connection is locked, so it must not block or panic.
    ///
    /// # Errors
    ///
    /// See [`command`](Self::command). If the reply is not accepted, the connection is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::RedisStore;
    /// use tollgate::deadpool_redis::redis::{Value, cmd};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    /// let is_number = |reply: &Value| matches!(reply, Value::Int(_));
    /// let life = store.command_checked(cmd("PTTL").arg("tollgate:{user:ada}:api:2"), is_number).await?;
    /// # let _ = life;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn command_checked(&self, command: &Cmd, is_reply: fn(&Value) -> bool) -> Result<Value, Error> {
        self.engine().command(command.clone(), Some(is_reply)).await
    }

    /// Returns the [`prefix`](crate::store::RedisStoreBuilder::prefix) of every key of the store.
    ///
    /// Use it to name your own keys next to those of the store.
    pub fn prefix(&self) -> &str {
        &self.engine().prefix
    }

    /// Returns the number of requests denied from the cache, without calling Redis.
    ///
    /// It counts from the creation of the store, over all clones. It is 0 [without a deny
    /// cache](crate::store::RedisStoreBuilder::without_deny_cache).
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

#[derive(Clone)]
struct RawRedisStore(Arc<Engine>);

impl RawRedisStore {
    /// Sends nothing before the first poll.
    fn call(&self, checks: &[Check], deadline: Deadline) -> Called<PendingDecision> {
        let (Self(engine), size) = (self, size(checks));
        if checks.is_empty() {
            let receipt = Receipt::empty(engine.id);
            return Called::Ready(Ok(StoreDecision { decision: Decision::new([], Source::Store), receipt }));
        }
        if size > MAX_CHECKS {
            let text = format!("{size} checks and bans in one decision are too many: at most {MAX_CHECKS} are allowed");
            return Called::Ready(Err(Error::invalid(text)));
        }
        let checks = kept(checks);
        let way = if !engine.servers.keep_together(&checks) && engine.is_apart(&checks) {
            let (engine, checks) = (Arc::clone(engine), checks.clone());
            DecideFuture::Apart(Box::pin(async move { engine.decide_apart(checks, deadline).await }))
        } else {
            DecideFuture::New(deadline)
        };
        Called::Pending(PendingDecision { engine: Arc::clone(engine), checks, way })
    }
}

struct PendingDecision {
    engine: Arc<Engine>,
    checks: Checks,
    way: DecideFuture,
}

enum DecideFuture {
    /// Not polled yet. The timeout begins with the first poll, because a caller may wait for something else before.
    New(Deadline),
    Together(PendingReply),
    Apart(Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>),
}

impl Future for PendingDecision {
    type Output = Result<StoreDecision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { engine, checks, way } = &mut *self;
        if let DecideFuture::New(deadline) = way {
            let asked = engine.begin(checks, Timeout::by(engine.budget, *deadline), cx)?;
            let was_polled = matches!(asked, PendingReply::Server(_));
            *way = DecideFuture::Together(asked);
            if was_polled {
                return Poll::Pending;
            }
        }
        match way {
            DecideFuture::New(_) => unreachable!("it was begun above"),
            DecideFuture::Together(asking) => Poll::Ready(match ready!(Pin::new(asking).poll(cx)) {
                Ok(part) => engine.decided(checks, part),
                Err(no_reply) => Err(engine.refund_late(checks, no_reply)),
            }),
            DecideFuture::Apart(deciding) => deciding.as_mut().poll(cx),
        }
    }
}

impl AsRef<[Check]> for PendingDecision {
    fn as_ref(&self) -> &[Check] {
        &self.checks
    }
}

impl Store for RawRedisStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        match self.call(checks, ask.deadline) {
            Called::Ready(decided) => MaybeFuture::Ready(decided),
            Called::Pending(call) => MaybeFuture::pending(call),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.0.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let (taken, engine) = (untaken(counter), Arc::clone(&self.0));
        let (taken, change) = changed(&taken, change);
        let request = Request::adjustment(&engine.prefix, &[], &taken, change, || engine.time.now_ms());
        let taken = taken.into_owned();
        MaybeFuture::pending(async move {
            // There is nothing to refund if the reply is late.
            let part = engine.call(request, Deadline::none()).await.map_err(|no_reply| no_reply.error)?.script()?;
            let now_us = part.now_us();
            applied_change(&taken, change, part).inspect_err(|_| engine.time.learn(now_us))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        if self.0.servers.settings().calls.is_none() && !requirements.is_empty() {
            return Err(Error::invalid("a RedisStore without_scripts decides no policies"));
        }
        let capabilities = Capabilities::with_few_bans(requirements, MAX_CHECKS)?;
        Ok(capabilities.timeout(self.0.budget).id(self.0.id))
    }
}
