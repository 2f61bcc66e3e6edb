//! Running rounds: loading, deciding, committing, and starting the rounds that waited.
//!
//! A round is a future that belongs to no caller. Its first poll is made by the caller that starts it: a database that
//! need not wait is done then, without a runtime. Else it goes on as a task of its own.
//!
//! | what | at most |
//! | --- | --- |
//! | loading, and trying again after conflicts | the budget of the store, 16 times |
//! | keeping states from other rounds | the budget, also while a commit has not returned |
//! | a commit whose requests have failed meanwhile | 10 s more, in which it keeps the place of a round |

use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, timeout_at};

use super::bytes::decode;
use super::id::StateId;
use super::job::{Done, Job, Waiter, Work};
use super::queue::{Batch, MOST_WAITING, Queue};
use super::round::Round;
use super::traits::{Committed, Loaded, StateBackend, StateTx, Write};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::clock::micros;
use crate::store::{Change, Receipt, Settlement, StoreId};

/// How often a round is tried.
const TRIES: usize = 16;

/// How long a commit goes on whose requests have failed: it may still return, and what it took is refunded then.
const LATE: Duration = Duration::from_secs(10);

/// What all clones of a store share.
pub(super) struct Shared<B> {
    pub(super) id: StoreId,
    pub(super) budget: Duration,
    backend: B,
    queue: Mutex<Queue>,
    /// How many times rounds are to be started: who raises it from 0 starts them, also for others.
    starts: AtomicUsize,
}

/// The result of each job of a round.
type Results = Vec<Result<Done, Error>>;

/// What became of one try.
enum Tried {
    /// Each job has its result.
    Done(Results),
    /// Another transaction was faster.
    Conflict,
}

/// A round that has begun. When it is dropped, however it ended, others begin.
struct Begun<B: StateBackend> {
    shared: Arc<Shared<B>>,
    /// The states that it keeps from other rounds.
    ids: Vec<StateId>,
}

impl<B: StateBackend> Shared<B> {
    pub(super) fn new(backend: B, budget: Duration, rounds: usize) -> Self {
        let queue = Mutex::new(Queue::new(rounds));
        Self { id: StoreId::new(), budget, backend, queue, starts: AtomicUsize::new(0) }
    }

    /// Begins some work, or has it wait for the states that it needs.
    ///
    /// # Errors
    ///
    /// If too much waits already.
    pub(super) fn submit(self: &Arc<Self>, work: Work) -> Result<Waiter, Error> {
        let (job, waiter) = Job::new(work);
        let batch = {
            let mut queue = self.queue();
            if !queue.push(job) {
                return Err(Error::new(Kind::Crowd, format!("{MOST_WAITING} requests wait for the database")));
            }
            queue.next()
        };
        if let Some(batch) = batch {
            self.begin(batch);
            self.start();
        }
        Ok(waiter)
    }

    /// Refunds in the background what was decided too late for its caller.
    fn refund(self: &Arc<Self>, receipt: &Receipt) {
        for check in 0..receipt.taken().len() {
            let settlement = Settlement::new(check, Change::Refund(u64::MAX));
            if let Some((taken, change)) = settlement.of(receipt) {
                let before = settlement.before(receipt).to_vec();
                drop(self.submit(Work::Adjust(Box::new((before, taken.clone(), change)))));
            }
        }
    }

    /// Begins a round on the caller's thread; if it has to wait, it goes on as a task.
    fn begin(self: &Arc<Self>, batch: Batch) {
        let runtime = batch.jobs.iter().find_map(|job| job.runtime.clone());
        let here = Runtime::try_current().ok();
        if let Some(other) = runtime.as_ref().filter(|runtime| here.as_ref().map(Runtime::id) != Some(runtime.id())) {
            // Its timers and connections are that runtime's.
            return spawn(other, run(self.begun(&batch), batch.jobs));
        }
        let mut round = Box::pin(run(self.begun(&batch), batch.jobs));
        let polled = catch_unwind(AssertUnwindSafe(|| poll_once(round.as_mut())));
        match polled {
            Ok(true) => {}
            // Without a runtime it is dropped, which rolls back unless it has begun to commit. Its callers have an error.
            Ok(false) => drop(runtime.map(|runtime| spawn(&runtime, round))),
            Err(panic) => {
                drop(round);
                self.start();
                if !thread::panicking() {
                    resume_unwind(panic);
                }
            }
        }
    }

    /// Starts the rounds that waited, as tasks where there is a runtime.
    ///
    /// A round of a runtime that has stopped ends at once, which starts others: that is left to the loop that runs
    /// already, however deep.
    fn start(self: &Arc<Self>) {
        if self.starts.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let mut starts = 1;
        loop {
            loop {
                let Some(batch) = self.queue().next() else { break };
                match batch.jobs.iter().find_map(|job| job.runtime.clone()) {
                    Some(runtime) => spawn(&runtime, run(self.begun(&batch), batch.jobs)),
                    // Its callers have an error; those that come next begin anew.
                    None if thread::panicking() => drop(self.begun(&batch)),
                    None => {
                        // It belongs to others: a panic is theirs, and they have an error.
                        let mut round = Box::pin(run(self.begun(&batch), batch.jobs));
                        drop(catch_unwind(AssertUnwindSafe(|| poll_once(round.as_mut()))));
                    }
                }
            }
            starts = self.starts.fetch_sub(starts, Ordering::AcqRel) - starts;
            if starts == 0 {
                return;
            }
        }
    }

    fn begun(self: &Arc<Self>, batch: &Batch) -> Begun<B> {
        Begun { shared: Arc::clone(self), ids: batch.ids.clone() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: StateBackend> Begun<B> {
    /// Lets other rounds have the states.
    fn release(&mut self) {
        let ids = mem::take(&mut self.ids);
        self.shared.queue().release(&ids);
    }
}

impl<B: StateBackend> Drop for Begun<B> {
    fn drop(&mut self) {
        self.release();
        self.shared.queue().ended();
        self.shared.start();
    }
}

/// Runs a round until each of its jobs has a result.
async fn run<B: StateBackend>(mut begun: Begun<B>, mut jobs: Vec<Job>) {
    let (shared, ids) = (Arc::clone(&begun.shared), begun.ids.clone());
    let until = Instant::now() + shared.budget;
    let mut result = Err(conflicts());
    for _ in 0..TRIES {
        jobs.retain(|job| !job.is_idle());
        if jobs.is_empty() {
            return;
        }
        result = try_once(&mut begun, &ids, &jobs, until).await;
        match result {
            Ok(Tried::Conflict) if Instant::now() < until => result = Err(conflicts()),
            _ => break,
        }
    }
    let mut late = Vec::new();
    match result {
        Ok(Tried::Done(done)) => {
            late.extend(jobs.into_iter().zip(done).filter_map(|(job, done)| job.complete(done)));
        }
        Ok(Tried::Conflict) => fail(jobs, &conflicts()),
        Err(error) => fail(jobs, &error),
    }
    for decided in late {
        shared.refund(&decided.receipt);
    }
}

/// Loads, decides and commits once.
async fn try_once<B: StateBackend>(
    begun: &mut Begun<B>,
    ids: &[StateId],
    jobs: &[Job],
    until: Instant,
) -> Result<Tried, Error> {
    let shared = Arc::clone(&begun.shared);
    let loaded = within(until, shared.backend.load(ids)).await.ok_or_else(|| late("load", shared.budget))??;
    let Loaded { now, states, tx } = loaded;
    let (done, writes) = decide(&shared, ids, jobs, now, &states)?;
    if writes.is_empty() {
        return Ok(Tried::Done(done));
    }
    let mut commit = Box::pin(tx.commit(writes));
    let committed = if let Some(committed) = within(until, commit.as_mut()).await {
        committed
    } else {
        begun.release();
        shared.start();
        let committed = within(Instant::now() + LATE, commit).await;
        committed.ok_or_else(|| late("commit", shared.budget + LATE))?
    };
    Ok(match committed? {
        Committed::Written => Tried::Done(done),
        Committed::Conflict => Tried::Conflict,
    })
}

/// Decides the jobs on what was loaded.
fn decide<B>(
    shared: &Shared<B>,
    ids: &[StateId],
    jobs: &[Job],
    now: Duration,
    states: &[Option<Vec<u8>>],
) -> Result<(Results, Vec<Write>), Error> {
    if states.len() != ids.len() {
        let text = format!("the database returned {} states for {} ids", states.len(), ids.len());
        return Err(Error::new(Kind::Store, text));
    }
    let states = states.iter().map(|state| state.as_deref().map(decode).transpose()).collect();
    let mut round = Round::new(shared.id, ids, micros(&move || now), states);
    let done = jobs.iter().map(|job| round.work(job)).collect();
    Ok((done, round.writes()))
}

/// Returns the same error to all jobs: it is one failure.
fn fail(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        drop(job.complete(Err(error.shared())));
    }
}

/// Waits for a future until a time, where there are timers; `None` if that is not long enough.
async fn within<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // What need not wait needs no timer.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(done);
    }
    if Runtime::try_current().is_err() {
        return Some(future.await);
    }
    timeout_at(until, future).await.ok()
}

/// Spawns a round so that the thread which does it may block afterwards: a second task has another worker take the first.
fn spawn<F: Future<Output = ()> + Send + 'static>(runtime: &Runtime, round: F) {
    drop(runtime.spawn(round));
    drop(runtime.spawn(async {}));
}

/// Polls a future once, and returns whether it is complete. If it is not, it has to be polled by a task.
fn poll_once<F: Future<Output = ()>>(round: Pin<&mut F>) -> bool {
    round.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn late(what: &str, after: Duration) -> Error {
    Error::new(Kind::Timeout, format!("the database did not {what} within {after:?}"))
}

fn conflicts() -> Error {
    Error::new(Kind::Store, "other transactions changed the same states again and again")
}
