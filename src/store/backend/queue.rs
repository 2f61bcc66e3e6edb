//! Which jobs make up the next rounds.
//!
//! Jobs that share a state are decided in one round, in the order in which they came, as a database would make all but one
//! of them wait or conflict. So each state has a line of the jobs that wait for it. A job is ready when it is the first in
//! the lines of all its states, and none of these is in a round. A round takes a job that is ready, then those behind it in
//! the same lines.
//!
//! Invariants: no state is in two rounds at once; of two jobs that share a state, the later one is never in an earlier
//! round; and whenever a round may begin, all jobs that are ready are in `ready`. Adding a job, and ending a round, take
//! time in proportion to their own states, however many jobs wait.

use std::collections::{HashMap, VecDeque};

use super::id::StateId;
use super::job::Job;

/// The most states in a round, and so of a job.
pub(super) const MOST_STATES: usize = 128;

/// The most jobs in a round, so that none of them waits for many others.
const MOST_JOBS: usize = 1_024;

/// How many jobs come between two searches for idle ones.
const SWEEP: u64 = 4_096;

/// The most jobs that wait; beyond it they fail at once.
pub(super) const MOST_WAITING: usize = 65_536;

/// Jobs that wait, and the states of those that do not.
pub(super) struct Queue {
    /// By their numbers, which rise.
    waiting: HashMap<u64, Job>,
    /// The lines that are busy or not empty.
    lines: HashMap<StateId, Line>,
    /// Jobs that were ready when they were added here.
    ready: VecDeque<u64>,
    /// The number of the next job.
    number: u64,
    /// How many rounds may still begin.
    free: usize,
    /// States whose lines may have a new first job.
    stale: Vec<StateId>,
    /// From which number on idle jobs are looked for again, if too many wait.
    sweep_at: u64,
}

/// Who waits for a state.
#[derive(Default)]
struct Line {
    /// Whether the state is in a round.
    is_busy: bool,
    /// Numbers of jobs, ascending; some may be of jobs that wait no more.
    jobs: VecDeque<u64>,
}

impl Line {
    /// Removes a job if it is the first.
    fn pop(&mut self, number: u64) {
        if self.jobs.front() == Some(&number) {
            self.jobs.pop_front();
        }
    }
}

/// Jobs to be decided together, in the order in which they came, and their states: distinct, in ascending order.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) ids: Vec<StateId>,
}

impl Queue {
    /// An empty queue, for so many rounds at once.
    pub(super) fn new(rounds: usize) -> Self {
        let (waiting, lines) = (HashMap::new(), HashMap::new());
        Self { waiting, lines, ready: VecDeque::new(), number: 0, free: rounds, stale: Vec::new(), sweep_at: 0 }
    }

    /// Adds a job, and returns whether there was room; if not, the job is dropped.
    pub(super) fn push(&mut self, job: Job) -> bool {
        if self.waiting.len() >= MOST_WAITING && self.number >= self.sweep_at {
            self.sweep();
        }
        let number = self.number;
        self.number += 1;
        if self.waiting.len() >= MOST_WAITING {
            return false;
        }
        for id in &job.ids {
            let line = self.lines.entry(id.clone()).or_default();
            // A state may be named twice.
            if line.jobs.back() != Some(&number) {
                line.jobs.push_back(number);
            }
        }
        self.waiting.insert(number, job);
        if self.is_ready(number) {
            self.ready.push_back(number);
        }
        true
    }

    /// Takes the next round, or `None` if no job is ready, or no further round may begin.
    pub(super) fn next(&mut self) -> Option<Batch> {
        if self.free == 0 {
            return None;
        }
        let (mut jobs, mut ids): (Vec<(u64, Job)>, Vec<StateId>) = (Vec::new(), Vec::new());
        // The last round that may begin takes whatever is ready.
        while jobs.is_empty() || self.free == 1 && jobs.len() < MOST_JOBS {
            let Some(number) = self.ready.pop_front() else { break };
            if !self.is_ready(number) {
                continue;
            }
            let Some(job) = self.waiting.get(&number) else { continue };
            if job.is_idle() {
                self.discard(number);
                self.look_at_stale();
                continue;
            }
            if !jobs.is_empty() && ids.len() + job.ids.len() > MOST_STATES {
                self.ready.push_front(number);
                break;
            }
            let mut place = ids.len();
            self.take(number, &mut jobs, &mut ids);
            while let Some(id) = ids.get(place).cloned() {
                self.follow(&id, &mut jobs, &mut ids);
                place += 1;
            }
        }
        self.look_at_stale();
        if jobs.is_empty() {
            return None;
        }
        self.free -= 1;
        ids.sort_unstable();
        jobs.sort_unstable_by_key(|(number, _)| *number);
        Some(Batch { jobs: jobs.into_iter().map(|(_, job)| job).collect(), ids })
    }

    /// Notes that the states of a round are free again.
    pub(super) fn release(&mut self, ids: &[StateId]) {
        for id in ids {
            if let Some(line) = self.lines.get_mut(id) {
                line.is_busy = false;
            }
            self.look_at(id);
        }
        self.look_at_stale();
    }

    /// Notes that a round has ended.
    pub(super) fn ended(&mut self) {
        self.free += 1;
    }

    /// Takes the jobs behind those of a round in the line of one of its states.
    fn follow(&mut self, id: &StateId, jobs: &mut Vec<(u64, Job)>, ids: &mut Vec<StateId>) {
        while let Some(number) = self.first(id).filter(|_| jobs.len() < MOST_JOBS) {
            let Some(job) = self.waiting.get(&number) else { return };
            let others = || job.ids.iter().filter(|other| !ids.contains(other));
            let is_free = |other: &StateId| {
                self.lines.get(other).is_none_or(|line| !line.is_busy && line.jobs.front() == Some(&number))
            };
            let is_first =
                |other: &StateId| self.lines.get(other).is_none_or(|line| line.jobs.front() == Some(&number));
            let is_ready = job.ids.iter().all(is_first) && others().all(is_free);
            if !is_ready || ids.len() + others().count() > MOST_STATES {
                return;
            }
            self.take(number, jobs, ids);
        }
    }

    /// Moves a job that is the first in all its lines into a round, whose states are busy from now on.
    fn take(&mut self, number: u64, jobs: &mut Vec<(u64, Job)>, ids: &mut Vec<StateId>) {
        let Some(job) = self.waiting.remove(&number) else { return };
        for id in &job.ids {
            if let Some(line) = self.lines.get_mut(id) {
                line.pop(number);
                if !line.is_busy {
                    line.is_busy = true;
                    ids.push(id.clone());
                }
            }
        }
        jobs.push((number, job));
    }

    /// Returns the first job in a line that is not idle. Idle ones are removed from it, and their other lines noted.
    fn first(&mut self, id: &StateId) -> Option<u64> {
        loop {
            let number = *self.lines.get(id)?.jobs.front()?;
            match self.waiting.get(&number) {
                Some(job) if !job.is_idle() => return Some(number),
                Some(_) => self.discard(number),
                None => {}
            }
            self.lines.get_mut(id)?.pop(number);
        }
    }

    /// Drops a job. Others may be the first in its lines now.
    fn discard(&mut self, number: u64) {
        if let Some(job) = self.waiting.remove(&number) {
            self.stale.extend(job.ids);
        }
    }

    /// Drops all jobs that nobody waits for.
    fn sweep(&mut self) {
        let idle: Vec<u64> = self.waiting.iter().filter(|(_, job)| job.is_idle()).map(|(number, _)| *number).collect();
        for number in idle {
            self.discard(number);
        }
        self.look_at_stale();
        // A sweep that freed nothing must not be followed by one for each job.
        self.sweep_at = self.number + SWEEP;
    }

    /// Looks at the lines of jobs that were dropped, until none is left.
    fn look_at_stale(&mut self) {
        while let Some(id) = self.stale.pop() {
            self.look_at(&id);
        }
    }

    /// Notes the first job of a line if it is ready; removes a line that nobody needs.
    fn look_at(&mut self, id: &StateId) {
        match self.first(id) {
            Some(number) if self.is_ready(number) => self.ready.push_back(number),
            Some(_) => {}
            None => {
                if self.lines.get(id).is_some_and(|line| !line.is_busy) {
                    self.lines.remove(id);
                }
            }
        }
    }

    /// Returns whether a job waits, is the first in all its lines, and none of its states is in a round.
    fn is_ready(&self, number: u64) -> bool {
        let is_first = |id| self.lines.get(id).is_some_and(|line| !line.is_busy && line.jobs.front() == Some(&number));
        self.waiting.get(&number).is_some_and(|job| job.ids.iter().all(is_first))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::job::{Waiter, Work};
    use super::*;
    use crate::core::{Key, Quota};
    use crate::store::{Check, Counter};

    fn counter(key: u8) -> Counter {
        Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), Quota::per_second(1))
    }

    fn job(keys: &[u8]) -> (Job, Waiter) {
        let checks: Vec<Check> = keys.iter().map(|key| Check::new(counter(*key), 1)).collect();
        Job::new(Work::decide(&checks))
    }

    fn keys(batch: &Batch) -> Vec<String> {
        batch.jobs.iter().map(|job| job.ids.iter().map(|id| id.as_str()[3..4].to_owned()).collect()).collect()
    }

    #[test]
    fn jobs_over_the_states_of_a_round_wait_and_go_together() {
        let mut queue = Queue::new(4);
        let jobs: Vec<(Job, Waiter)> = [&[1][..], &[1], &[2, 1], &[3], &[2]].into_iter().map(job).collect();
        let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = jobs.into_iter().unzip();
        let mut rounds = Vec::new();
        for job in jobs {
            assert!(queue.push(job));
            rounds.extend(queue.next());
        }
        assert_eq!(rounds.iter().map(keys).collect::<Vec<_>>(), [["1"], ["3"]]);
        queue.release(&rounds[0].ids);
        queue.ended();
        let next = queue.next().expect("three wait");
        assert_eq!(keys(&next), ["1", "21", "2"]);
        assert!(queue.next().is_none());
    }

    #[test]
    fn the_last_round_takes_all_that_is_ready() {
        let mut queue = Queue::new(1);
        let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = (0..9).map(|key| job(&[key])).unzip();
        for job in jobs {
            assert!(queue.push(job));
        }
        assert_eq!(queue.next().expect("all are ready").jobs.len(), 9);
    }

    #[test]
    fn who_left_holds_up_nobody() {
        let mut queue = Queue::new(4);
        let ((first, _waits), (left, leaves), (second, _too)) = (job(&[1]), job(&[1, 2]), job(&[2]));
        assert!(queue.push(first));
        let round = queue.next().expect("it is ready");
        assert!(queue.push(left) && queue.push(second));
        drop(leaves);
        assert!(queue.next().is_none(), "it is not known before the line moves");
        queue.release(&round.ids);
        assert_eq!(keys(&queue.next().expect("the other is first now")), ["2"]);
    }

    #[test]
    fn thousands_who_left_are_no_deep_recursion_and_make_room() {
        let mut queue = Queue::new(4);
        let (first, _waits) = job(&[1]);
        assert!(queue.push(first));
        let round = queue.next().expect("it is ready");
        for _ in 0..MOST_WAITING {
            let (left, waiter) = job(&[1]);
            assert!(queue.push(left));
            drop(waiter);
        }
        let (last, _last) = job(&[1]);
        assert!(queue.push(last), "idle jobs make room");
        let (mut left, mut waiters) = (0, Vec::new());
        while left < 10_000 {
            let (other, waiter) = job(&[1]);
            assert!(queue.push(other));
            waiters.push(waiter);
            left += 1;
        }
        drop(waiters);
        queue.release(&round.ids);
        queue.ended();
        assert_eq!(queue.next().expect("one is left").jobs.len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Push(Vec<u8>),
        Leave(usize),
        Release(usize),
        End(usize),
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => proptest::collection::vec(0_u8..6, 1..4).prop_map(Event::Push),
            1 => any::<usize>().prop_map(Event::Leave),
            1 => any::<usize>().prop_map(Event::Release),
            3 => any::<usize>().prop_map(Event::End),
        ]
    }

    proptest! {
        #[test]
        fn no_state_is_in_two_rounds_and_no_job_is_forgotten(events in proptest::collection::vec(any_event(), 1..60)) {
            let mut queue = Queue::new(3);
            let (mut waiters, mut rounds, mut released) = (Vec::new(), Vec::<Batch>::new(), 0);
            for event in events {
                match event {
                    Event::Push(keys) => {
                        let (job, waiter) = job(&keys);
                        prop_assert!(queue.push(job));
                        waiters.push(waiter);
                    }
                    Event::Leave(place) if !waiters.is_empty() => drop(waiters.swap_remove(place % waiters.len())),
                    Event::Release(place) if !rounds.is_empty() => {
                        let place = place % rounds.len();
                        let ids = std::mem::take(&mut rounds[place].ids);
                        queue.release(&ids);
                    }
                    Event::End(place) if !rounds.is_empty() => {
                        let round = rounds.swap_remove(place % rounds.len());
                        queue.release(&round.ids);
                        queue.ended();
                        released += 1;
                    }
                    _ => {}
                }
                rounds.extend(std::iter::from_fn(|| queue.next()));
                let mut busy: Vec<&StateId> = rounds.iter().flat_map(|round| &round.ids).collect();
                let all = busy.len();
                busy.sort_unstable();
                busy.dedup();
                prop_assert_eq!(busy.len(), all);
                prop_assert!(rounds.len() <= 3);
            }
            while let Some(round) = rounds.pop() {
                queue.release(&round.ids);
                queue.ended();
                released += 1;
                rounds.extend(std::iter::from_fn(|| queue.next()));
            }
            prop_assert!(released <= 60);
            prop_assert!(queue.waiting.values().all(Job::is_idle), "a job was forgotten");
            prop_assert_eq!(queue.free, 3);
        }
    }
}
