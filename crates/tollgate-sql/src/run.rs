//! Execution of transactions: loading, deciding, committing, and retries.
//!
//! A transaction belongs to no caller, so none delays another one. The caller that begins it makes the first poll, so a
//! database that need not wait is done then, without a runtime. Otherwise it continues as a separate task.
//!
//! | step | at most |
//! | --- | --- |
//! | loading, and retries after conflicts | the timeout of the store, 16 times |
//! | a commit after its requests have failed | 10 s more, in which it keeps the place of a transaction |
//! | retries of settlements that were certainly not settled | 10 s |

use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, sleep, timeout_at};
use tollgate::Error;
use tollgate::store::{Change, Evaluation, MaybeFuture, Receipt, Settlement, StateId, StoreId};

use crate::queue::{Batch, MAX_STATES, MAX_WAITING, TxJob, TxQueue, TxResult, Work};
use crate::traits::{Committed, StateBackend, StateTx};

const TRIES: u32 = 16;

/// Longest pause after the second conflict, which doubles with each further conflict. After the first, the transaction
/// is retried immediately.
const CONFLICT_PAUSE_US: u64 = 1_000;
const MAX_CONFLICT_PAUSE_US: u64 = 4_000;

const LATE: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(250);

type Results = Vec<Result<TxResult, Error>>;

pub(crate) struct BackendInner<B> {
    pub(crate) id: StoreId,
    pub(crate) budget: Duration,
    backend: B,
    queue: Mutex<TxQueue>,
}

/// Transaction that has begun. When it is dropped, however it ended, the next one begins.
struct Transaction<B: StateBackend> {
    shared: Arc<BackendInner<B>>,
    ids: Vec<StateId>,
    jobs: Vec<TxJob>,
}

impl<B: StateBackend> BackendInner<B> {
    pub(crate) fn new(backend: B, budget: Duration, transactions: usize) -> Self {
        Self { id: StoreId::new(), budget, backend, queue: Mutex::new(TxQueue::new(transactions)) }
    }

    /// Begins a transaction, or waits for the states. `until` is the deadline of the caller. Without it the work is a
    /// settlement, which is retried if it certainly was not made.
    pub(crate) fn submit(self: &Arc<Self>, work: Work, until: Option<Instant>) -> MaybeFuture<Result<TxResult, Error>> {
        let (budget, (sender, mut reply)) = (self.budget, oneshot::channel());
        let (ids, pause) = (work.ids(), until.is_none().then_some(PAUSE));
        if ids.is_empty() {
            return MaybeFuture::Ready(work.perform(&mut Evaluation::new(self.id, Duration::ZERO, [])));
        }
        if ids.len() > MAX_STATES {
            let text =
                format!("{} counters and bans at once are too many for a database: at most {MAX_STATES}", ids.len());
            return MaybeFuture::Ready(Err(Error::invalid(text)));
        }
        let over = until.unwrap_or_else(|| Instant::now() + LATE.max(budget));
        let bound = if until.is_some() { budget } else { LATE.max(budget) + LATE + budget };
        self.push(TxJob { work, ids, until: over, pause, reply: sender });
        // By then a settlement has the result of its last try.
        let until = until.unwrap_or(over + LATE + budget);
        match reply.try_recv() {
            Ok(result) => MaybeFuture::Ready(result),
            Err(TryRecvError::Closed) => MaybeFuture::Ready(Err(lost())),
            Err(TryRecvError::Empty) => MaybeFuture::pending(async move {
                if let Some(result) = within(until, &mut reply).await {
                    return result.unwrap_or_else(|_| Err(lost()));
                }
                // Later replies are too late. Earlier ones are in the channel.
                reply.close();
                reply.try_recv().unwrap_or_else(|_| Err(late("answer", bound)))
            }),
        }
    }

    fn refund(self: &Arc<Self>, receipt: Receipt) {
        let all = |check| Settlement::new(check, Change::Refund(u64::MAX));
        let changes: Vec<_> = (0..receipt.items().len()).map(all).collect();
        drop(self.submit(Work::Settle(receipt, changes), None));
    }

    fn push(self: &Arc<Self>, job: TxJob) {
        let mut queue = self.queue();
        if queue.is_full() {
            drop(queue);
            return self.fail(job, &Error::overloaded(format!("{MAX_WAITING} requests wait for the database")));
        }
        let batch = queue.push(job);
        drop(queue);
        if let Some(batch) = batch {
            self.begin(batch);
        }
    }

    fn fail(self: &Arc<Self>, mut job: TxJob, error: &Error) {
        if error.is_unsent()
            && !error.is_invalid()
            && Instant::now() < job.until
            && let (Some(pause), Ok(runtime)) = (job.pause, Handle::try_current())
        {
            job.pause = Some(MAX_PAUSE.min(2 * pause));
            let shared = Arc::clone(self);
            runtime.spawn(async move {
                sleep(pause).await;
                shared.push(job);
            });
        } else {
            drop(job.reply.send(Err(error.shared())));
        }
    }

    fn begin(self: &Arc<Self>, batch: Batch) {
        let mut run = Box::pin(run(self.transaction(batch)));
        if run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            spawn(run);
        }
    }

    /// Begins transactions after another one has ended, as tasks, or one after the other if there is no runtime.
    /// Transactions that end during the loop leave the next ones to it, because nesting would overflow the stack.
    fn begin_next(self: &Arc<Self>) {
        while let Some(batch) = self.next() {
            if Handle::try_current().is_ok() || thread::panicking() {
                spawn(run(self.transaction(batch)));
            } else {
                // It belongs to others: a panic is theirs, and they have an error.
                drop(catch_unwind(AssertUnwindSafe(|| self.begin(batch))));
            }
        }
    }

    fn transaction(self: &Arc<Self>, (jobs, ids): Batch) -> Transaction<B> {
        Transaction { shared: Arc::clone(self), ids, jobs }
    }

    fn next(&self) -> Option<Batch> {
        let mut queue = self.queue();
        let next = queue.next();
        queue.is_beginning = next.is_some();
        next
    }

    fn queue(&self) -> MutexGuard<'_, TxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: StateBackend> Transaction<B> {
    fn release(&mut self, places: usize) {
        let mut queue = self.shared.queue();
        queue.release(&mem::take(&mut self.ids));
        queue.free += places;
        let is_begun = mem::replace(&mut queue.is_beginning, true);
        drop(queue);
        if !is_begun {
            self.shared.begin_next();
        }
    }

    async fn try_once(&mut self, until: Instant) -> Result<Option<Results>, Error> {
        let shared = Arc::clone(&self.shared);
        let loaded = within(until, shared.backend.load(&self.ids)).await;
        let loaded = loaded.unwrap_or_else(|| Err(late("load", shared.budget))).map_err(Error::unsent)?;
        // Requests of callers that have left take nothing.
        self.jobs.retain(|job| !job.has_left());
        if loaded.states.len() != self.ids.len() {
            let text = format!("the database returned {} states for {} ids", loaded.states.len(), self.ids.len());
            return Err(Error::store(text, "it has to return one for each"));
        }
        let states = self.ids.iter().cloned().zip(loaded.states);
        let mut evaluation = Evaluation::new(shared.id, loaded.now, states);
        let done = self.jobs.iter().map(|job| job.work.perform(&mut evaluation)).collect();
        let writes = evaluation.into_writes();
        if writes.is_empty() {
            return Ok(Some(done));
        }
        let mut commit = pin!(loaded.tx.commit(writes));
        let mut committed = within(until, commit.as_mut()).await;
        if committed.is_none() {
            self.release(0);
            committed = within(Instant::now() + LATE, commit).await;
        }
        let committed = committed.unwrap_or_else(|| Err(late("commit", shared.budget + LATE)))?;
        Ok((committed == Committed::Written).then_some(done))
    }

    fn complete(&mut self, done: Results) {
        let mut late = Vec::new();
        for (job, result) in mem::take(&mut self.jobs).into_iter().zip(done) {
            if let Err(Ok(TxResult::Decided(decided))) = job.reply.send(result)
                && job.until <= Instant::now()
            {
                late.push(decided.receipt);
            }
        }
        // After all jobs have their results, because a refund may call the database.
        for receipt in late {
            self.shared.refund(receipt);
        }
    }

    fn fail(&mut self, error: &Error) {
        for job in mem::take(&mut self.jobs) {
            self.shared.fail(job, error);
        }
    }
}

impl<B: StateBackend> Drop for Transaction<B> {
    fn drop(&mut self) {
        self.jobs.clear();
        self.release(1);
    }
}

async fn run<B: StateBackend>(mut transaction: Transaction<B>) {
    let until = Instant::now() + transaction.shared.budget;
    for conflicts in 0..TRIES {
        transaction.jobs.retain(|job| !job.has_left());
        if transaction.jobs.is_empty() || conflicts > 0 && Instant::now() >= until {
            break;
        }
        if conflicts > 1 && Handle::try_current().is_ok() {
            let most = (CONFLICT_PAUSE_US << (conflicts - 2)).min(MAX_CONFLICT_PAUSE_US);
            sleep(Duration::from_micros(fastrand::u64(..=most))).await;
        }
        match transaction.try_once(until).await {
            Ok(Some(done)) => return transaction.complete(done),
            Ok(None) => {}
            Err(error) => return transaction.fail(&error),
        }
    }
    let text = "other transactions changed the same states again and again";
    transaction.fail(&Error::store(text, format!("it is tried until the timeout, at most {TRIES} times")).unsent());
}

/// Without a runtime the transaction is dropped, which rolls back unless it has begun to commit, and its callers get an
/// error.
fn spawn(run: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(run));
        // The caller may block its thread next, which keeps the task that was spawned last: others take the first.
        drop(runtime.spawn(async {}));
    }
}

/// Without timers it waits for the future.
async fn within<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // A future that need not wait needs no timer, so it is polled once first.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(done);
    }
    if Handle::try_current().is_err() {
        return Some(future.await);
    }
    timeout_at(until, future).await.ok()
}

fn late(what: &str, after: Duration) -> Error {
    Error::timeout(format!("the database did not {what} within {after:?}"))
}

pub(crate) fn lost() -> Error {
    Error::store("the transaction was dropped", "its runtime stopped, or the database panicked")
}
