//! Asking the server: in batches, within a budget, at most once.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::Pool;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::error::Elapsed;

use super::builder::RedisStoreBuilder;
use super::combine::{Batch, Caller, Combiner, Job, Lead, Place, no_decision};
use super::connection::Connections;
use super::reply::{Answered, Reply};
use super::request::{Packed, Request};
use super::script::{Calls, Program};
use crate::Error;
use crate::error::Kind;
use crate::store::StoreId;
use crate::store::memory::{Clock, micros};

/// Settlements on their way at most; more are not sent, and units stay taken.
const MOST_SETTLEMENTS: usize = 4_096;

/// What all clones of a store share.
pub(super) struct Inner {
    pub(super) id: StoreId,
    pub(super) connections: Connections,
    pub(super) prefix: String,
    pub(super) budget: Duration,
    pub(super) calls: Calls,
    clock: Option<Box<dyn Clock>>,
    combiner: Arc<Combiner>,
    settling: Arc<Semaphore>,
    /// Where settlements run that come from outside any runtime.
    runtime: OnceLock<Runtime>,
}

impl Inner {
    pub(super) fn new(pool: Pool, settings: RedisStoreBuilder) -> Self {
        let RedisStoreBuilder { prefix, budget, clock, batch_size, calls, .. } = settings;
        let settling = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        let (id, connections) = (StoreId::new(), Connections::new(pool));
        let combiner = Arc::new(Combiner::new(batch_size));
        Self { id, connections, prefix, budget, calls, clock, combiner, settling, runtime: OnceLock::new() }
    }

    /// Has a request decided together with others, within the budget.
    pub(super) async fn combine(self: &Arc<Self>, request: Request) -> Result<Answered, Error> {
        let _ = self.runtime.get_or_init(Runtime::current);
        let (answer, mut answered) = oneshot::channel();
        let answered = match self.combiner.join(Job { request, caller: Caller::Waits(answer) }) {
            Place::Lead(batch) => {
                // A call keeps to the budget by itself.
                Lead::new(Arc::clone(self).lead(batch)).await;
                (&mut answered).await
            }
            Place::Wait => match tokio::time::timeout(self.budget, &mut answered).await {
                Ok(answered) => answered,
                Err(late) => return Err(self.late(late)),
            },
            Place::Full => return Err(Error::new(Kind::Store, "too many decisions wait for Redis")),
        };
        let stopped = |closed| Error::new(Kind::Store, "the call to Redis was stopped").with_source(closed);
        answered.unwrap_or_else(|closed| Err(stopped(closed)))
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
        let packed = Packed::of(batch.jobs.iter().map(|job| &job.request));
        let reply = {
            let mut called = pin!(self.call(packed));
            // Polled once, it is on the connection, or waits for one.
            let first = poll_fn(|cx| Poll::Ready(called.as_mut().poll(cx))).await;
            batch.is_sent();
            match first {
                Poll::Ready(reply) => reply,
                Poll::Pending => called.await,
            }
        };
        let reply = match reply {
            Ok(Value::BulkString(bytes)) => Reply::read(bytes.into(), batch.checks()).ok_or_else(no_decision),
            Ok(_) => Err(no_decision()),
            Err(error) => Err(error),
        };
        batch.answer(reply);
        batch.next()
    }

    fn late(&self, late: Elapsed) -> Error {
        Error::new(Kind::Timeout, format!("Redis did not answer in {:?}", self.budget)).with_source(late)
    }

    /// Makes a call within the budget. What was sent and not answered in time is never sent again.
    async fn call(&self, packed: Packed<'_>) -> Result<Value, Error> {
        let now = self.clock.as_deref().map(|clock| micros(clock).to_string()).unwrap_or_default();
        let program = Program::of(self.calls, packed.needs);
        let mut call = program.command(packed.needs);
        call.arg(packed.keys.len()).arg(packed.keys).arg(now).arg(packed.bytes);
        self.ask(async |connection: &mut MultiplexedConnection| program.call(connection, &call).await).await
    }

    /// Asks the server something within the budget. A connection that fails, or answers nobody
    /// meanwhile, is not used again; one whose caller went away is, and one that is merely slow.
    pub(super) async fn ask<T>(
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

    /// Sends a settlement in the background, after those sent before: at most once, and not beyond a
    /// bounded number.
    pub(super) fn send(self: &Arc<Self>, request: Request) {
        let runtime = Runtime::try_current().ok().or_else(|| self.runtime.get().cloned());
        let (Some(runtime), Ok(permit)) = (runtime, Arc::clone(&self.settling).try_acquire_owned()) else {
            tracing::warn!("a settlement was not sent: no runtime, or too many on their way");
            return;
        };
        let job = Job { request, caller: Caller::None(permit) };
        if let Some(batch) = self.combiner.join_settlement(job) {
            runtime.spawn(Arc::clone(self).follow(batch));
        }
    }
}

/// Whether another connection may do better: after a failover this one may lead to a replica.
fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.is_unrecoverable_error()
        || error.is_io_error()
        || error.is_connection_dropped()
}

pub(super) fn failed(error: &RedisError) -> Error {
    let (kind, text) = if error.is_timeout() {
        (Kind::Timeout, "Redis did not answer in time")
    } else if error.is_io_error() || error.is_connection_dropped() {
        (Kind::Connection, "the connection to Redis was lost")
    } else {
        (Kind::Store, "Redis refused a command")
    };
    Error::new(kind, text).with_source(error.clone())
}
