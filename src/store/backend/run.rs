//! Running rounds: loading, deciding, committing, and starting the rounds that waited.
//!
//! A round is a future that belongs to no caller. Its first poll is made by the caller that starts it: a database that
//! need not wait is done then, without a runtime. Else it goes on as a task of its own.
//!
//! | what | at most |
//! | --- | --- |
//! | loading, and trying again after conflicts | the budget of the store, 16 times |
//! | keeping states from other rounds | the budget, also while a commit has not returned or nothing drives its runtime |
//! | a commit whose requests have failed meanwhile | 10 s more, in which it keeps the place of a round |

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle as Runtime, Id};
use tokio::time::Instant;

use super::decide::{Results, decide};
use super::id::StateId;
use super::job::{Job, Waiter, Work};
use super::poll::{poll_once, spawn, within};
use super::queue::{Batch, LATE, MOST_WAITING, Queue};
use super::traits::{Committed, Loaded, StateBackend, StateTx};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Change, Receipt, Settlement, StoreId};

/// How often a round is tried.
const TRIES: usize = 16;

/// What all clones of a store share.
pub(super) struct Shared<B> {
    pub(super) id: StoreId,
    pub(super) budget: Duration,
    backend: B,
    queue: Mutex<Queue>,
    /// How many times rounds are to be started: who raises it from 0 starts them, also for others.
    starts: AtomicUsize,
}

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
    /// Its number in the queue.
    round: u64,
    ids: Vec<StateId>,
    /// Those without a result.
    jobs: Vec<Job>,
    /// The runtime that runs it.
    runtime: Option<Id>,
    /// Whether something may have been written, so that its jobs must not be done again.
    may_be_written: bool,
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
            let now = Instant::now();
            queue.next(now + self.budget).or_else(|| {
                queue.reclaim(now);
                queue.next(now + self.budget)
            })
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
        let (begun, runtime) = self.begun(batch);
        let here = Runtime::try_current().ok().map(|here| here.id());
        if let Some(other) = runtime.as_ref().filter(|runtime| here != Some(runtime.id())) {
            // Its timers and connections are that runtime's.
            return spawn(other, run(begun));
        }
        let mut round = Box::pin(run(begun));
        match catch_unwind(AssertUnwindSafe(|| poll_once(round.as_mut()))) {
            Ok(true) => {}
            // Without a runtime it is dropped, which rolls back unless it has begun to commit. Its callers have an error.
            Ok(false) => drop(runtime.map(|runtime| spawn(&runtime, round))),
            Err(panic) => {
                drop(round);
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
                let Some(batch) = self.queue().next(Instant::now() + self.budget) else { break };
                let (begun, runtime) = self.begun(batch);
                if let Some(runtime) = runtime {
                    spawn(&runtime, run(begun));
                } else if !thread::panicking() {
                    // It belongs to others: a panic is theirs, and they have an error. What has to wait is dropped,
                    // which may panic, too.
                    drop(catch_unwind(AssertUnwindSafe(|| poll_once(Box::pin(run(begun)).as_mut()))));
                }
            }
            starts = self.starts.fetch_sub(starts, Ordering::AcqRel) - starts;
            if starts == 0 {
                return;
            }
        }
    }

    /// Returns a round that keeps its states from others, and the runtime of the first of its jobs that has one.
    fn begun(self: &Arc<Self>, Batch { round, jobs, ids }: Batch) -> (Begun<B>, Option<Runtime>) {
        let runtime = jobs.iter().find_map(|job| job.runtime.clone());
        let id = runtime.as_ref().map(Runtime::id);
        (Begun { shared: Arc::clone(self), round, ids, jobs, runtime: id, may_be_written: false }, runtime)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: StateBackend> Begun<B> {
    /// Lets other rounds have the states.
    fn release(&mut self) {
        self.shared.queue().release(self.round);
    }
}

impl<B: StateBackend> Drop for Begun<B> {
    fn drop(&mut self) {
        let jobs = mem::take(&mut self.jobs).into_iter();
        // If its runtime stopped before anything was written, those of others wait for a round of another one.
        let (again, lost): (Vec<Job>, Vec<Job>) = jobs.partition(|job| {
            let runtime = job.runtime.as_ref().map(Runtime::id);
            !self.may_be_written && runtime.is_some() && runtime != self.runtime
        });
        {
            let mut queue = self.shared.queue();
            queue.ended(self.round);
            for job in again {
                queue.push(job);
            }
        }
        drop(lost);
        self.shared.start();
    }
}

/// Runs a round until each of its jobs has a result.
async fn run<B: StateBackend>(mut begun: Begun<B>) {
    let (shared, ids) = (Arc::clone(&begun.shared), begun.ids.clone());
    let until = Instant::now() + shared.budget;
    let mut result = Err(conflicts());
    for _ in 0..TRIES {
        begun.jobs.retain(|job| !job.is_idle());
        if begun.jobs.is_empty() {
            return;
        }
        result = try_once(&mut begun, &ids, until).await;
        match result {
            Ok(Tried::Conflict) if Instant::now() < until => result = Err(conflicts()),
            _ => break,
        }
    }
    let jobs = mem::take(&mut begun.jobs);
    match result {
        Ok(Tried::Done(done)) => {
            let late: Vec<_> = jobs.into_iter().zip(done).filter_map(|(job, done)| job.complete(done)).collect();
            for decided in late {
                shared.refund(&decided.receipt);
            }
        }
        Ok(Tried::Conflict) => fail(jobs, &conflicts()),
        Err(error) => fail(jobs, &error),
    }
}

/// Loads, decides and commits once.
async fn try_once<B: StateBackend>(begun: &mut Begun<B>, ids: &[StateId], until: Instant) -> Result<Tried, Error> {
    let shared = Arc::clone(&begun.shared);
    let loaded = within(until, shared.backend.load(ids)).await.ok_or_else(|| late("load", shared.budget))??;
    let Loaded { now, states, tx } = loaded;
    let (done, writes) = decide(shared.id, ids, &begun.jobs, now, &states)?;
    if writes.is_empty() {
        return Ok(Tried::Done(done));
    }
    begun.may_be_written = true;
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
        Committed::Conflict => {
            begun.may_be_written = false;
            Tried::Conflict
        }
    })
}

/// Returns the same error to all jobs: it is one failure.
fn fail(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        drop(job.complete(Err(error.shared())));
    }
}

fn late(what: &str, after: Duration) -> Error {
    Error::new(Kind::Timeout, format!("the database did not {what} within {after:?}"))
}

fn conflicts() -> Error {
    Error::new(Kind::Store, "other transactions changed the same states again and again")
}
