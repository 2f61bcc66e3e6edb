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

pub(crate) const MOST_STATES: usize = 128;

/// Most jobs in a transaction, so that none of them waits for many others.
const MOST_JOBS: usize = 1_024;

pub(crate) const MOST_WAITING: usize = 16_384;

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
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.retain(|job| !job.has_left());
        }
        self.waiting.len() >= MOST_WAITING
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
            let fits = jobs.len() < MOST_JOBS && ids.len() + job.ids.len() <= MOST_STATES;
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
    /// Distinct, at most [`MOST_STATES`], or the job would wait for ever.
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
    use proptest::prelude::*;
    use tokio::sync::oneshot::Receiver;
    use tollgate::{Key, Quota};

    use super::*;

    type Waiter = Receiver<Result<TxResult, Error>>;

    fn counter(key: u8) -> Counter {
        Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), Quota::per_second(1))
    }

    fn job(keys: &[u8]) -> (TxJob, Waiter) {
        let checks: Vec<Check> = keys.iter().map(|key| Check::new(counter(*key), 1)).collect();
        let (work, (reply, waiter)) = (Work::Decide(checks), oneshot::channel());
        (TxJob { ids: work.ids(), work, until: Instant::now(), pause: None, reply }, waiter)
    }

    fn keys((jobs, _): &Batch) -> Vec<String> {
        jobs.iter().map(|job| job.ids.iter().map(|id| id.as_str()[3..4].to_owned()).collect()).collect()
    }

    fn end(queue: &mut TxQueue, (_, ids): &Batch) -> Option<Batch> {
        queue.release(ids);
        queue.free += 1;
        queue.next()
    }

    #[test]
    fn jobs_over_the_states_of_a_transaction_wait_and_go_together() {
        let mut queue = TxQueue::new(4);
        let (jobs, _waiters): (Vec<TxJob>, Vec<Waiter>) =
            [&[1][..], &[1], &[2, 1], &[3], &[2]].into_iter().map(job).unzip();
        let begun: Vec<Batch> = jobs.into_iter().filter_map(|job| queue.push(job)).collect();
        assert_eq!(begun.iter().map(keys).collect::<Vec<_>>(), [["1"], ["3"]]);
        let next = end(&mut queue, &begun[0]).expect("three wait");
        assert_eq!(keys(&next), ["1", "12", "2"]);
        assert!(queue.next().is_none());
    }

    #[test]
    fn many_that_wait_for_one_state_hold_up_no_other() {
        let mut queue = TxQueue::new(2);
        let (jobs, _waiters): (Vec<TxJob>, Vec<Waiter>) = (0..2 * MOST_JOBS).map(|_| job(&[1])).unzip();
        let begun: Vec<Batch> = jobs.into_iter().filter_map(|job| queue.push(job)).collect();
        let (other, _waits) = job(&[2]);
        assert_eq!(keys(&queue.push(other).expect("its state is free")), ["2"]);
        assert_eq!(end(&mut queue, &begun[0]).expect("they may go").0.len(), MOST_JOBS);
    }

    #[test]
    fn who_left_holds_up_nobody() {
        let mut queue = TxQueue::new(4);
        let ((first, _waits), (left, leaves), (second, _too)) = (job(&[1]), job(&[1, 2]), job(&[2]));
        let _first = queue.push(first).expect("it may go");
        assert!(queue.push(left).is_none());
        drop(leaves);
        assert_eq!(keys(&queue.push(second).expect("nobody waits before it")), ["2"]);
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let mut queue = TxQueue::new(1);
        let (first, _waits) = job(&[1]);
        let begun = queue.push(first).expect("it may go");
        let (jobs, waiters): (Vec<TxJob>, Vec<Waiter>) = (0..MOST_WAITING).map(|_| job(&[1])).unzip();
        assert!(jobs.into_iter().all(|job| queue.push(job).is_none()));
        assert!(queue.is_full());
        drop(waiters);
        assert!(end(&mut queue, &begun).is_none(), "all of them left");
        assert!(!queue.is_full());
    }

    #[derive(Clone, Debug)]
    enum QueueEvent {
        Push(Vec<u8>),
        Leave(usize),
        Release(usize),
        End(usize),
    }

    fn any_event() -> impl Strategy<Value = QueueEvent> {
        prop_oneof![
            4 => proptest::collection::vec(0_u8..6, 1..4).prop_map(QueueEvent::Push),
            1 => any::<usize>().prop_map(QueueEvent::Leave),
            1 => any::<usize>().prop_map(QueueEvent::Release),
            3 => any::<usize>().prop_map(QueueEvent::End),
        ]
    }

    proptest! {
        #[test]
        fn no_state_is_in_two_transactions_and_no_job_is_forgotten(
            events in proptest::collection::vec(any_event(), 1..60),
        ) {
            let mut queue = TxQueue::new(3);
            let (mut waiters, mut begun, mut done) = (Vec::new(), Vec::<Batch>::new(), 0);
            for event in events {
                match event {
                    QueueEvent::Push(keys) => {
                        let (job, waiter) = job(&keys);
                        waiters.push(waiter);
                        begun.extend(queue.push(job));
                    }
                    QueueEvent::Leave(place) if !waiters.is_empty() => drop(waiters.swap_remove(place % waiters.len())),
                    QueueEvent::Release(place) if !begun.is_empty() => {
                        let place = place % begun.len();
                        queue.release(&mem::take(&mut begun[place].1));
                        begun.extend(queue.next());
                    }
                    QueueEvent::End(place) if !begun.is_empty() => {
                        let ended = begun.swap_remove(place % begun.len());
                        begun.extend(end(&mut queue, &ended));
                        done += ended.0.len();
                    }
                    _ => {}
                }
                let mut busy: Vec<&StateId> = begun.iter().flat_map(|(_, ids)| ids).collect();
                let all = busy.len();
                busy.sort_unstable();
                busy.dedup();
                prop_assert_eq!(busy.len(), all);
                prop_assert!(begun.len() + queue.free <= 3);
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
