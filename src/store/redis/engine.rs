//! Asking the server: in batches, within a budget, at most once.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout_at;

use super::batch::Batch;
use super::builder::RedisStoreBuilder;
use super::combine::{Combiner, no_decision};
use super::combiners::Combiners;
use super::job::{Caller, Job};
use super::lead::Lead;
use super::packed::{self, Packed};
use super::patience::Patience;
use super::reply::{Answered, Reply};
use super::request::Request;
use super::script::{Calls, Program};
use super::servers::{Servers, Waiter};
use crate::Error;
use crate::error::Kind;
use crate::store::StoreId;
use crate::store::memory::{Clock, micros};

/// Settlements on their way at most; more are not sent, and units stay taken.
const MOST_SETTLEMENTS: usize = 4_096;

/// What all clones of a store share.
pub(super) struct Inner {
    pub(super) id: StoreId,
    pub(super) servers: Servers,
    pub(super) prefix: String,
    pub(super) budget: Duration,
    pub(super) calls: Calls,
    clock: Option<Box<dyn Clock>>,
    combiners: Combiners,
    settling: Arc<Semaphore>,
    /// Where settlements run that come from outside any runtime.
    runtime: OnceLock<Runtime>,
}

impl Inner {
    pub(super) fn new(servers: Servers, settings: RedisStoreBuilder) -> Self {
        let RedisStoreBuilder { prefix, budget, clock, batch_size, calls, .. } = settings;
        let settling = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        let (id, combiners) = (StoreId::new(), Combiners::new(servers.slots(), batch_size));
        Self { id, servers, prefix, budget, calls, clock, combiners, settling, runtime: OnceLock::new() }
    }

    /// Has a request decided together with others, within the budget. It joins them at once.
    pub(super) fn combine(self: &Arc<Self>, request: Request) -> impl Future<Output = Result<Answered, Error>> + Send {
        let _ = self.runtime.get_or_init(Runtime::current);
        let (answer, mut answered) = oneshot::channel();
        let (combiner, patience) = (self.combiner_of(&request), Patience::new(self.budget));
        let slot = combiner.slot();
        let batch = combiner.join(Job { request, caller: Caller::Waits(answer) });
        let waiter = if batch.is_none() { self.servers.waiter(slot) } else { None };
        let mut lead = batch.map(|batch| Lead::new(Arc::clone(self).lead(batch, patience)));
        async move {
            if let Some(lead) = &mut lead {
                // The call keeps to the budget by itself. It may have no room for this request, which is
                // in the next one then.
                lead.await;
                match answered.try_recv() {
                    Ok(answer) => return answer,
                    Err(TryRecvError::Closed) => return Err(stopped()),
                    Err(TryRecvError::Empty) => {}
                }
            }
            let answer = timeout_at(patience.until, answered).await.map_err(|late| {
                waiter.into_iter().for_each(Waiter::gives_up);
                self.servers.told(slot, patience.late(late))
            });
            answer?.unwrap_or_else(|_| Err(stopped()))
        }
    }

    /// Sends a batch; what came meanwhile is sent by a task, as its callers are not to keep this one.
    #[allow(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice")]
    fn lead(self: Arc<Self>, mut batch: Batch, patience: Patience) -> impl Future<Output = ()> + Send {
        async move {
            let reply = self.send_batch(&mut batch, patience).await;
            batch.answer(reply);
            if let Some(next) = batch.next() {
                tokio::spawn(self.follow(next));
            }
        }
    }

    /// Sends a batch, and what comes meanwhile. Answers are given before the next call is made: those
    /// who have theirs may be in it, and fuller calls are worth more than earlier ones.
    #[allow(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice")]
    fn follow(self: Arc<Self>, mut batch: Batch) -> impl Future<Output = ()> + Send {
        async move {
            loop {
                let reply = self.send_batch(&mut batch, Patience::new(self.budget)).await;
                batch.answer(reply);
                let Some(next) = batch.next() else { return };
                batch = next;
            }
        }
    }

    /// Makes one call within the budget. What was sent and not answered in time is never sent again.
    fn send_batch(&self, batch: &mut Batch, patience: Patience) -> impl Future<Output = Result<Reply, Error>> + Send {
        packed::sort(&mut batch.jobs);
        let (program, call) = self.call(Packed::of(&batch.jobs));
        async move {
            let mut called = pin!(self.servers.call(batch.slot(), patience, program, &call));
            let answer = poll_fn(|cx| {
                let answer = called.as_mut().poll(cx);
                // Polled once, it is on the connection, or waits for one.
                batch.is_sent();
                answer
            });
            match answer.await {
                Ok(Value::BulkString(bytes)) => Reply::read(bytes.into(), batch.checks()).ok_or_else(no_decision),
                Ok(_) => Err(no_decision()),
                Err(failure) => Err(self.servers.told(batch.slot(), patience.told(failure))),
            }
        }
    }

    fn call(&self, packed: Packed<'_>) -> (&'static Program, Cmd) {
        let now = self.clock.as_deref().map(|clock| micros(clock).to_string()).unwrap_or_default();
        let program = Program::of(self.calls, packed.needs);
        let room = packed.keys.iter().map(|key| key.len()).sum::<usize>() + now.len() + packed.bytes.len();
        let mut call = program.command(packed.needs, packed.keys.len() + 3, room);
        call.arg(packed.keys.len()).arg(packed.keys).arg(now).arg(packed.bytes);
        (program, call)
    }

    fn combiner_of(&self, request: &Request) -> &Arc<Combiner> {
        let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
        self.combiners.of(slot)
    }

    /// Sends a settlement in the background, after those sent before: at most once, and not beyond a
    /// bounded number.
    pub(super) fn send(self: &Arc<Self>, request: Request) {
        let runtime = Runtime::try_current().ok().or_else(|| self.runtime.get().cloned());
        let (Some(runtime), Ok(permit)) = (runtime, Arc::clone(&self.settling).try_acquire_owned()) else {
            tracing::warn!("a settlement was not sent: no runtime, or too many on their way");
            return;
        };
        let combiner = self.combiner_of(&request);
        if let Some(batch) = combiner.join_settlement(Job { request, caller: Caller::None(permit) }) {
            runtime.spawn(Arc::clone(self).follow(batch));
        }
    }
}

#[cold]
fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped")
}
