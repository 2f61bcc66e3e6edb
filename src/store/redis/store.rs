//! The Redis store: one script call for the decisions that come together.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::Pool;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value, cmd};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::error::Elapsed;

use super::builder::RedisStoreBuilder;
use super::combine::{Batch, Combiner, Job, Lead, Place};
use super::connection::Connections;
use super::script::Program;
use super::wire::{ALGORITHMS, Algorithms, Answered, MOST_CHECKS, Packed, read_answers, redis_key};
use crate::Error;
use crate::decision::{Decision, Outcome, Source};
use crate::error::Kind;
use crate::store::memory::{Clock, micros};
use crate::store::{Answer, Change, Check, Counter, Decided, Receipt, Settlement, Store, StoreId, Taken};

const NO_DECISION: &str = "Redis answered a decision with something else";

/// Settlements on their way at most; more are not sent, and units stay taken.
const MOST_SETTLEMENTS: usize = 4_096;

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides on the server's time, over all policies of the request; requests that come while
/// calls are in flight share the next one. The store survives restarts of the server by itself: a
/// decision that fails meanwhile returns an error within its budget. Clones share the connection.
/// Needs a tokio runtime.
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
}

struct Inner {
    id: StoreId,
    connections: Connections,
    prefix: String,
    budget: Duration,
    clock: Option<Box<dyn Clock>>,
    combiner: Arc<Combiner>,
    settling: Arc<Semaphore>,
    /// Where settlements run that come from outside any runtime.
    runtime: OnceLock<Runtime>,
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

    pub(super) fn new(pool: Pool, settings: RedisStoreBuilder) -> Self {
        let RedisStoreBuilder { prefix, budget, clock, .. } = settings;
        let settling = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        let (id, connections, runtime) = (StoreId::new(), Connections::new(pool), OnceLock::new());
        let combiner = Arc::default();
        let inner = Inner { id, connections, prefix, budget, clock, combiner, settling, runtime };
        Self { inner: Arc::new(inner) }
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
        let packed = Packed::request(&self.inner.prefix, checks);
        let (inner, checks) = (Arc::clone(&self.inner), checks.to_vec());
        Answer::pending(async move {
            let _ = inner.runtime.get_or_init(Runtime::current);
            let answer = inner.combine(packed).await?;
            inner.decided(&checks, &answer)
        })
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) {
        if receipt.store() != self.inner.id {
            return;
        }
        for (taken, change) in changes.iter().filter_map(|settlement| settlement.of(&receipt)) {
            let packed = Packed::adjustment(&self.inner.prefix, &taken.counter, change, Some(taken.stamp));
            self.inner.send(packed);
        }
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<(), Error>> {
        let packed = Packed::adjustment(&self.inner.prefix, counter, change, None);
        let inner = Arc::clone(&self.inner);
        Answer::pending(async move { inner.call(Program::adjust(packed.algorithms), packed).await.map(drop) })
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        let key = redis_key(&self.inner.prefix, counter);
        let inner = Arc::clone(&self.inner);
        Answer::pending(async move {
            inner
                .ask(async |connection: &mut MultiplexedConnection| {
                    cmd("UNLINK").arg(key).query_async(connection).await
                })
                .await
        })
    }
}

impl Inner {
    /// Has a request decided together with others, within the budget.
    async fn combine(self: &Arc<Self>, request: Packed) -> Result<Bytes, Error> {
        let (answer, mut answered) = oneshot::channel();
        let combined = async {
            match self.combiner.join(Job { request, answer }) {
                Place::Lead(batch) => Lead::new(Arc::clone(self).lead(batch)).await,
                Place::Wait => {}
                Place::Full => return Err(Error::new(Kind::Store, "too many decisions wait for Redis")),
            }
            let stopped = |closed| Error::new(Kind::Store, "the call to Redis was stopped").with_source(closed);
            (&mut answered).await.unwrap_or_else(|closed| Err(stopped(closed)))
        };
        tokio::time::timeout(self.budget, combined).await.unwrap_or_else(|late| Err(self.late(late)))
    }

    /// Sends a batch; what came meanwhile is sent by a task, as its callers are not to keep this one.
    async fn lead(self: Arc<Self>, batch: Batch) {
        if let Some(next) = self.send_batch(batch).await {
            tokio::spawn(self.follow(next));
        }
    }

    async fn follow(self: Arc<Self>, batch: Batch) {
        let mut next = Some(batch);
        while let Some(batch) = next {
            next = self.send_batch(batch).await;
        }
    }

    /// Makes one call; returns what came meanwhile.
    async fn send_batch(&self, mut batch: Batch) -> Option<Batch> {
        let packed = Packed::batch(batch.jobs.iter().map(|job| &job.request));
        let answer = match self.call(Program::decide(packed.algorithms), packed).await {
            Ok(Value::BulkString(answers)) => Ok(answers.into()),
            Ok(_) => Err(Error::new(Kind::Store, NO_DECISION)),
            Err(error) => Err(error),
        };
        batch.answer(answer);
        batch.next()
    }

    fn late(&self, late: Elapsed) -> Error {
        Error::new(Kind::Timeout, format!("Redis did not answer in {:?}", self.budget)).with_source(late)
    }

    /// Calls a script within the budget. What was sent and not answered in time is never sent again.
    async fn call(&self, program: &Program, packed: Packed) -> Result<Value, Error> {
        let now = self.clock.as_deref().map(|clock| micros(clock).to_string()).unwrap_or_default();
        self.ask(async |connection: &mut MultiplexedConnection| {
            program.call(connection, &packed.keys, &now, &packed.bytes).await
        })
        .await
    }

    /// Asks the server something within the budget. A connection that fails, or answers nobody
    /// meanwhile, is not used again; one whose caller went away is, and one that is merely slow.
    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        let mut used = None;
        let asked = async {
            let handle = self.connections.get().await?;
            let (handle, _) = used.insert((handle.clone(), handle.answers()));
            let answer = question(&mut handle.connection.clone()).await;
            match &answer {
                Err(error) if is_of_the_connection(error) => self.connections.discard(handle),
                _ => handle.count_answer(),
            }
            answer.map_err(|error| failed(&error))
        };
        match tokio::time::timeout(self.budget, asked).await {
            Ok(answer) => answer,
            Err(late) => {
                if let Some((handle, _)) = used.filter(|(handle, answers)| handle.answers() == *answers) {
                    self.connections.discard(&handle);
                }
                Err(self.late(late))
            }
        }
    }

    /// Sends a settlement in the background: at most once, and not beyond a bounded number.
    fn send(self: &Arc<Self>, packed: Packed) {
        let runtime = Runtime::try_current().ok().or_else(|| self.runtime.get().cloned());
        let (Some(runtime), Ok(permit)) = (runtime, Arc::clone(&self.settling).try_acquire_owned()) else {
            tracing::warn!("a settlement was not sent: no runtime, or too many on their way");
            return;
        };
        let inner = Arc::clone(self);
        runtime.spawn(async move {
            let _permit = permit;
            if let Err(error) = inner.call(Program::adjust(packed.algorithms), packed).await {
                tracing::warn!(error = format!("{error:#}"), "a settlement may not have arrived");
            }
        });
    }

    fn decided(&self, checks: &[Check], answer: &[u8]) -> Result<Decided, Error> {
        let answers = read_answers(answer, checks.len()).ok_or_else(|| Error::new(Kind::Store, NO_DECISION))?;
        let answers: Vec<Answered> = answers.collect();
        let both = || checks.iter().zip(&answers);
        both().for_each(|(check, answered)| answered.found.warn(check));
        let outcomes = both().map(|(check, answered)| Outcome::from_measures(check, &answered.measures));
        let decision = Decision::new(outcomes, Source::Store);
        let taken = both().filter(|_| decision.is_allowed()).map(|(check, answered)| taken(check, answered));
        let receipt = Receipt::new(self.id, taken);
        Ok(Decided { decision, receipt })
    }
}

fn taken(check: &Check, answered: &Answered) -> Taken {
    let units = if answered.measures.fits { check.cost } else { 0 };
    Taken { counter: check.counter.clone(), units, stamp: answered.stamp, slot: 0 }
}

/// Whether another connection may do better: after a failover this one may lead to a replica.
fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.is_unrecoverable_error()
        || error.is_io_error()
        || error.is_connection_dropped()
}

fn failed(error: &RedisError) -> Error {
    let (kind, text) = if error.is_timeout() {
        (Kind::Timeout, "Redis did not answer in time")
    } else if error.is_io_error() || error.is_connection_dropped() {
        (Kind::Connection, "the connection to Redis was lost")
    } else {
        (Kind::Store, "Redis refused a command")
    };
    Error::new(kind, text).with_source(error.clone())
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.inner.prefix)
            .field("budget", &self.inner.budget)
            .finish_non_exhaustive()
    }
}
