//! The Redis store, as the rest of the crate sees it: the trait [`Store`] on top of the engine.
//!
//! Checks come in; a decision goes out, from the deny cache without a call, from one script call,
//! or, on a Cluster, from one call for each slot (`apart.rs`). What is decided by the cache, and
//! what the cache records of each decision, is arranged here; everything about time and servers is
//! the engine's.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::wire::{MOST_CHECKS, Request, applied_change, was_there};
use crate::core::decision::{Decision, Source};
use crate::core::{Error, Requirement, kept};
use crate::store::deny::{CacheLookup, Snapshot};
use crate::store::evaluate::of_any;
use crate::store::traits::with_few_bans;
use crate::store::{
    Answer, Applied, BreakerState, Change, Check, Counter, Deadline, Decided, Receipt, Report, Settlement, Settling,
    Store, StoreId, Tally, Totals,
};

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides over all policies of a request, by the server's clock; concurrent requests share calls. The store
/// connects to one server, to a Cluster (`RedisStoreBuilder::connect_cluster` describes what differs there), or to the
/// primary that sentinels name. It caches refusals for up to 1 s, as a [`DenyCache`](crate::DenyCache) does.
///
/// The store survives restarts of the server: a decision that fails meanwhile returns an error within its budget (100
/// ms unless it is [set](crate::store::RedisStoreBuilder::budget)), and later ones connect again. Clones share
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
/// Connecting with the first decision lets a service start before Redis does:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{RedisStore, Store};
///
/// let store = RedisStore::connect_lazy("redis://127.0.0.1:6379")?;
/// assert_eq!(store.budget(), Some(Duration::from_millis(100)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    /// What all clones share.
    engine: Arc<Engine>,
}

impl RedisStore {
    /// Returns a store of an engine.
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Returns the primaries of a Cluster, as `host:port` and sorted by that, and the state of each
    /// one's circuit breaker.
    ///
    /// It is empty for one server, and for the primary that sentinels name: the circuit breaker is
    /// then [that of the layer](crate::RateLimitLayer::breaker_state). It is also empty until the
    /// first decision of a store that connects lazily.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::connect_lazy("redis://127.0.0.1:6379")?;
    /// assert!(store.breakers().is_empty());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.engine.servers.breakers()
    }

    /// Returns how many requests were refused without calling Redis, as it had just refused one
    /// like them. It is 0 [without a deny cache](crate::store::RedisStoreBuilder::without_deny_cache), and counts
    /// since the store was made, over all of its clones.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::connect_lazy("redis://127.0.0.1:6379")?;
    /// assert_eq!(store.refused_from_cache(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refused_from_cache(&self) -> u64 {
        self.engine.refusals.as_ref().map_or(0, |refusals| refusals.refused_from_cache())
    }

    /// Has Redis decide, and records the decision in the deny cache, if there is a snapshot
    /// for it.
    fn decide_by_call(
        &self,
        checks: &[Check],
        deadline: Deadline,
        snapshot: Option<Snapshot>,
    ) -> Answer<Result<Decided, Error>> {
        let with_strikes = snapshot.as_ref().map(|snapshot| snapshot.with_strikes(checks));
        let (engine, checks) = (Arc::clone(&self.engine), kept(with_strikes.as_deref().unwrap_or(checks)));
        Answer::pending(async move {
            let decided = if engine.servers.keep_together(&checks) || !engine.is_apart(&checks) {
                match engine.call(Request::new(&engine.prefix, &checks, || engine.time.now_ms()), deadline).await {
                    Ok(part) => engine.decided(&checks, part),
                    Err(no_reply) => Err(engine.refund_late(&checks, no_reply)),
                }
            } else {
                Arc::clone(&engine).decide_apart(checks.clone(), deadline).await
            };
            if let (Ok(decided), Some(refusals), Some(snapshot)) = (&decided, &engine.refusals, &snapshot) {
                refusals.record(snapshot, &checks, &decided.decision);
            }
            decided
        })
    }
}

impl Store for RedisStore {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            let decision = Decision::new([], Source::Store);
            return Answer::Ready(Ok(Decided { decision, receipt: Receipt::new(self.engine.id, []) }));
        }
        let size = Request::size_of(checks);
        if size > MOST_CHECKS {
            let text = format!("{size} checks and bans in one decision are too many: give at most {MOST_CHECKS}");
            return Answer::Ready(Err(Error::invalid(text)));
        }
        match self.engine.refusals.as_ref().map(|refusals| refusals.lookup(checks)) {
            Some(CacheLookup::Refused(decided)) => Answer::Ready(Ok(decided)),
            Some(CacheLookup::Miss(snapshot)) => self.decide_by_call(checks, deadline, Some(snapshot)),
            None => self.decide_by_call(checks, deadline, None),
        }
    }

    /// As `decide`, but never from a cached refusal: only Redis shows whether Redis is available.
    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() || Request::size_of(checks) > MOST_CHECKS {
            return self.decide(checks, deadline);
        }
        self.decide_by_call(checks, deadline, self.engine.refusals.as_ref().map(|refusals| refusals.miss(checks)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.engine.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let taken = of_any(counter);
        let request = Request::adjustment(&self.engine.prefix, &[], &taken, change, || self.engine.time.now_ms());
        let engine = Arc::clone(&self.engine);
        // A strike frees no units, and those that are counted in the cache would be lost.
        let refusals = self.engine.refusals.as_ref().filter(|_| !matches!(change, Change::Strike(_)));
        let forgetting = refusals.map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            applied_change(&taken, change, engine.change(request).await?)
        })
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<bool, Error>> {
        let request = Request::reset(&self.engine.prefix, counter);
        let engine = Arc::clone(&self.engine);
        let forgetting = self.engine.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            was_there(engine.change(request).await?)
        })
    }

    fn budget(&self) -> Option<Duration> {
        Some(self.engine.budget)
    }

    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        with_few_bans(requirements, MOST_CHECKS)
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.engine.refusals.as_ref().and_then(|refusals| refusals.recall(checks))
    }

    fn id(&self) -> Option<StoreId> {
        Some(self.engine.id)
    }
}

/// What processes report is in Redis for four ticks, by its clock: also for a store with a
/// [clock](crate::store::RedisStoreBuilder::with_clock) of its own. A report has the store's budget, and at most a
/// quarter of a tick. It takes [more rules](crate::store::RedisStoreBuilder::connect) than decisions.
impl Tally for RedisStore {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(Arc::clone(&self.engine).report(report))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.engine.prefix)
            .field("budget", &self.engine.budget)
            .finish_non_exhaustive()
    }
}
