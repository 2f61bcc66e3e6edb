//! Jobs of transactions, and which of them share the next one.
//!
//! A state is in one transaction of a process at a time, except while a commit is late, because the database would make
//! the second transaction wait, or report a conflict. A job whose states are free has a separate transaction. The
//! others wait, and when a transaction ends, the next one takes all jobs that may start by then, in the order of
//! arrival. So a hot key has one transaction after another, each with all of its requests. One transaction per request
//! would be simpler, but a key would have no more decisions than the database makes commits one after the other.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::mem;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate::Error;
use tollgate::store::{Change, ChangeResult, Check, Counter, Evaluation, Receipt, Settlement, StateId, StoreDecision};

pub(crate) const MAX_STATES: usize = 128;

/// Most jobs in a transaction, so that none of them waits for many others.
const MAX_JOBS: usize = 1_024;

pub(crate) const MAX_WAITING: usize = 16_384;

pub(crate) struct TxQueue {
    waiting: VecDeque<TxJob>,
    busy: HashSet<StateId>,
    pub(crate) free: usize,
    /// Whether a loop that begins transactions is running, which will check for more.
    pub(crate) is_beginning: bool,
}

pub(crate) type Batch = (Vec<TxJob>, Vec<StateId>);

impl TxQueue {
    pub(crate) fn new(transactions: usize) -> Self {
        Self { waiting: VecDeque::new(), busy: HashSet::new(), free: transactions, is_beginning: false }
    }

    pub(crate) fn is_full(&mut self) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.retain(|job| !job.has_left());
        }
        self.waiting.len() >= MAX_WAITING
    }

    pub(crate) fn push(&mut self, job: TxJob) -> Option<Batch> {
        let is_busy = job.ids.iter().any(|id| self.busy.contains(id));
        self.waiting.push_back(job);
        if is_busy { None } else { self.next() }
    }

    pub(crate) fn next(&mut self) -> Option<Batch> {
        if self.free == 0 {
            return None;
        }
        let (mut jobs, mut ids, mut held) = (Vec::new(), BTreeSet::new(), HashSet::new());
        for job in mem::take(&mut self.waiting).into_iter().filter(|job| !job.has_left()) {
            let fits = jobs.len() < MAX_JOBS && ids.len() + job.ids.len() <= MAX_STATES;
            if fits && !job.ids.iter().any(|id| self.busy.contains(id) || held.contains(id)) {
                ids.extend(job.ids.iter().cloned());
                jobs.push(job);
            } else {
                held.extend(job.ids.iter().cloned());
                self.waiting.push_back(job);
            }
        }
        if jobs.is_empty() {
            return None;
        }
        self.busy.extend(ids.iter().cloned());
        self.free -= 1;
        Some((jobs, ids.into_iter().collect()))
    }

    pub(crate) fn release(&mut self, ids: &[StateId]) {
        for id in ids {
            self.busy.remove(id);
        }
    }
}

pub(crate) enum Work {
    Decide(Vec<Check>),
    Settle(Receipt, Vec<Settlement>),
    Adjust(Counter, Change),
}

#[derive(Debug)]
pub(crate) enum TxResult {
    Decided(StoreDecision),
    Changed(Vec<ChangeResult>),
}

impl TxResult {
    pub(crate) fn decided(self) -> StoreDecision {
        match self {
            Self::Decided(decided) => decided,
            Self::Changed(_) => unreachable!("a decision was wanted"),
        }
    }

    pub(crate) fn changed(self) -> Vec<ChangeResult> {
        match self {
            Self::Changed(results) => results,
            Self::Decided(_) => unreachable!("a change was wanted"),
        }
    }
}

pub(crate) struct TxJob {
    pub(crate) work: Work,
    /// Distinct, at most [`MAX_STATES`], or the job would wait for ever.
    pub(crate) ids: Vec<StateId>,
    /// Deadline of its caller, or of the retries of a settlement.
    pub(crate) until: Instant,
    /// Pause before the next try if the job was certainly not done. Only settlements are retried.
    pub(crate) pause: Option<Duration>,
    pub(crate) reply: oneshot::Sender<Result<TxResult, Error>>,
}

impl Work {
    pub(crate) fn ids(&self) -> Vec<StateId> {
        let mut ids = match self {
            Self::Decide(checks) => StateId::of_checks(checks),
            Self::Settle(receipt, changes) => StateId::of_changes(receipt, changes),
            Self::Adjust(counter, change) => vec![StateId::of_change(counter, *change)],
        };
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(crate) fn perform(&self, evaluation: &mut Evaluation) -> Result<TxResult, Error> {
        Ok(match self {
            Self::Decide(checks) => TxResult::Decided(evaluation.decide(checks)?),
            Self::Settle(receipt, changes) => TxResult::Changed(evaluation.settle(receipt, changes)?),
            Self::Adjust(counter, change) => TxResult::Changed(vec![evaluation.adjust(counter, *change)?]),
        })
    }
}

impl TxJob {
    /// Returns `true` if no caller waits for the decision any more. Changes are made in any case.
    pub(crate) fn has_left(&self) -> bool {
        matches!(self.work, Work::Decide(_)) && self.reply.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::sync::oneshot::Receiver;
    use tollgate::{Key, Quota};

    use super::*;

    type Waiter = Receiver<Result<TxResult, Error>>;

    fn counter(key: u8) -> Counter {
        Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), Quota::per_second(1))
    }

    /// A job over these keys, the later the higher its number.
    fn job(keys: &[u8], number: u32, start: Instant) -> (TxJob, Waiter) {
        let checks: Vec<Check> = keys.iter().map(|key| Check::new(counter(*key), 1)).collect();
        let (work, (reply, waiter)) = (Work::Decide(checks), oneshot::channel());
        (TxJob { ids: work.ids(), work, until: start + Duration::from_secs(1) * number, pause: None, reply }, waiter)
    }

    fn end(queue: &mut TxQueue, (_, ids): &Batch) -> Option<Batch> {
        queue.release(ids);
        queue.free += 1;
        queue.next()
    }

    proptest! {
        #[test]
        fn no_state_is_in_two_transactions_and_no_job_is_overtaken_or_forgotten(
            events in vec((0..9_u8, any::<usize>(), vec(0_u8..6, 1..4)), 1..60),
        ) {
            let (mut queue, start) = (TxQueue::new(3), Instant::now());
            let (mut waiters, mut begun, mut done) = (Vec::new(), Vec::<Batch>::new(), 0);
            for (number, (event, place, keys)) in (0..).zip(events) {
                match event {
                    0..4 => {
                        let (job, waiter) = job(&keys, number, start);
                        waiters.push(waiter);
                        begun.extend(queue.push(job));
                    }
                    4 if !waiters.is_empty() => drop(waiters.swap_remove(place % waiters.len())),
                    5 if !begun.is_empty() => {
                        let place = place % begun.len();
                        queue.release(&mem::take(&mut begun[place].1));
                        begun.extend(queue.next());
                        prop_assert!(queue.next().is_none(), "all that may begin have begun together");
                    }
                    6.. if !begun.is_empty() => {
                        let ended = begun.swap_remove(place % begun.len());
                        begun.extend(end(&mut queue, &ended));
                        prop_assert!(queue.next().is_none(), "all that may begin have begun together");
                        done += ended.0.len();
                    }
                    _ => {}
                }
                let busy: Vec<&StateId> = begun.iter().flat_map(|(_, ids)| ids).collect();
                prop_assert_eq!(busy.iter().collect::<HashSet<_>>().len(), busy.len());
                prop_assert!(begun.len() + queue.free <= 3);
                for job in begun.iter().flat_map(|(jobs, _)| jobs) {
                    let shares = |other: &&TxJob| other.ids.iter().any(|id| job.ids.contains(id));
                    let mut waiting = queue.waiting.iter().filter(|other| !other.has_left()).filter(shares);
                    prop_assert!(waiting.all(|other| other.until > job.until), "it was overtaken");
                }
            }
            while let Some(ended) = begun.pop() {
                begun.extend(end(&mut queue, &ended));
                done += ended.0.len();
            }
            prop_assert!(done <= 60);
            prop_assert!(queue.waiting.iter().all(TxJob::has_left), "a job was forgotten");
            prop_assert_eq!(queue.free, 3);
            prop_assert!(queue.busy.is_empty());
        }
    }
}
