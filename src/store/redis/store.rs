//! The Redis store: one script call for the decisions that come together.

use std::fmt;
use std::sync::Arc;

use deadpool_redis::Pool;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::cmd;

use super::builder::RedisStoreBuilder;
use super::engine::{Inner, failed, no_decision};
use super::script::Program;
use super::wire::{ALGORITHMS, Algorithms, Answered, MOST_CHECKS, Packed, read_answers, redis_key};
use crate::Error;
use crate::decision::{Decision, Outcome, Source};
use crate::store::deny::{Asked, Refusals};
use crate::store::{Answer, Change, Check, Counter, Decided, DenyCacheBuilder, Receipt, Settlement, Store, Taken};

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides on the server's time, over all policies of the request; requests that come while
/// calls are in flight share the next one. The store survives restarts of the server by itself: a
/// decision that fails meanwhile returns an error within its budget. Clones share the connection.
/// What was refused a moment ago is refused without a call, as a [`DenyCache`](crate::DenyCache)
/// does. Needs a tokio runtime.
///
/// # Examples
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
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
    refusals: Option<Arc<Refusals>>,
}

impl RedisStore {
    /// Connects with the default settings. See [`RedisStoreBuilder::connect`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or the server cannot be reached, refuses the connection, or is no
    /// Redis.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Uses a pool that is there already, with the default settings.
    ///
    /// # Panics
    ///
    /// Never: the default settings are valid.
    pub fn from_pool(pool: Pool) -> Self {
        Self::builder().from_pool(pool).expect("the default settings are valid")
    }

    /// Settings to connect with.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    pub(super) fn new(
        pool: Pool,
        settings: RedisStoreBuilder,
        deny_cache: Option<DenyCacheBuilder>,
    ) -> Result<Self, Error> {
        let inner = Arc::new(Inner::new(pool, settings));
        let refusals = deny_cache.map(|cache| cache.refusals(inner.id)).transpose()?.map(Arc::new);
        Ok(Self { inner, refusals })
    }

    /// How many requests were refused without asking Redis, as it had just refused their like.
    pub fn answered_from_deny_cache(&self) -> u64 {
        self.refusals.as_ref().map_or(0, |refusals| refusals.answered())
    }

    /// Connects and loads the scripts for each algorithm; those for several at once are loaded when
    /// they are first called.
    pub(super) async fn prepare(&self) -> Result<(), Error> {
        let mut handle = self.inner.connections.get().await?;
        for algorithms in ALGORITHMS.map(Algorithms::of) {
            for program in [Program::decide(algorithms), Program::adjust(algorithms)] {
                program.load(&mut handle.connection).await.map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

impl Store for RedisStore {
    fn decide(&self, checks: &[Check]) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            let decision = Decision::new([], Source::Store);
            return Answer::Ready(Ok(Decided { decision, receipt: Receipt::new(self.inner.id, []) }));
        }
        if checks.len() > MOST_CHECKS {
            let text = format!("{} checks in one decision are too many: give at most {MOST_CHECKS}", checks.len());
            return Answer::Ready(Err(Error::invalid(text)));
        }
        let question = match self.refusals.as_ref().map(|refusals| refusals.ask(checks)) {
            Some(Asked::Refused(decided)) => return Answer::Ready(Ok(decided)),
            Some(Asked::Open(question)) => question,
            None => None,
        };
        let packed = Packed::request(&self.inner.prefix, checks);
        let (store, checks) = (self.clone(), checks.to_vec());
        Answer::pending(async move {
            let answer = store.inner.combine(packed).await?;
            let decided = store.decided(&checks, &answer)?;
            if let (Some(refusals), Some(question)) = (&store.refusals, &question) {
                refusals.learn(question, &checks, &decided.decision);
            }
            Ok(decided)
        })
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) {
        if receipt.store() != self.inner.id {
            return;
        }
        for (taken, change) in changes.iter().filter_map(|settlement| settlement.of(&receipt)) {
            if let Some(refusals) = &self.refusals {
                refusals.settled(&taken.counter);
            }
            let packed = Packed::adjustment(&self.inner.prefix, &taken.counter, change, Some(taken.stamp));
            self.inner.send(packed);
        }
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<(), Error>> {
        let packed = Packed::adjustment(&self.inner.prefix, counter, change, None);
        let inner = Arc::clone(&self.inner);
        let forgetting = self.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            inner.call(Program::adjust(packed.algorithms), packed).await.map(drop)
        })
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        let key = redis_key(&self.inner.prefix, counter);
        let inner = Arc::clone(&self.inner);
        let forgetting = self.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            inner
                .ask(async |connection: &mut MultiplexedConnection| {
                    cmd("UNLINK").arg(key).query_async(connection).await
                })
                .await
        })
    }
}

impl RedisStore {
    fn decided(&self, checks: &[Check], answer: &[u8]) -> Result<Decided, Error> {
        let answers = read_answers(answer, checks.len()).ok_or_else(no_decision)?;
        let answers: Vec<Answered> = answers.collect();
        let both = || checks.iter().zip(&answers);
        both().for_each(|(check, answered)| answered.found.warn(check));
        let outcomes = both().map(|(check, answered)| Outcome::from_measures(check, &answered.measures));
        let decision = Decision::new(outcomes, Source::Store);
        let taken = both().filter(|_| decision.is_allowed()).map(|(check, answered)| taken(check, answered));
        let receipt = Receipt::new(self.inner.id, taken);
        Ok(Decided { decision, receipt })
    }
}

fn taken(check: &Check, answered: &Answered) -> Taken {
    let units = if answered.measures.fits { check.cost } else { 0 };
    Taken { counter: check.counter.clone(), units, stamp: answered.stamp, slot: 0 }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.inner.prefix)
            .field("budget", &self.inner.budget)
            .finish_non_exhaustive()
    }
}
