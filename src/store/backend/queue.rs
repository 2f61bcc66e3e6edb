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
//!
//! A round that is not driven, as nothing runs its runtime, would keep its states and its place for ever. So both are taken
//! back when its time is over and another job needs them. It may still go on: the database keeps it apart from others, as
//! it does rounds of other processes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::id::StateId;
use super::job::Job;

/// The most states in a round, and so of a job.
pub(super) const MOST_STATES: usize = 128;

/// The most jobs in a round, so that none of them waits for many others.
const MOST_JOBS: usize = 1_024;

/// How long a round keeps its place after its states are free again: a late commit may still return, and what it took is
/// refunded then.
pub(super) const LATE: Duration = Duration::from_secs(10);

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
    /// The rounds that have a place, by their numbers.
    rounds: BTreeMap<u64, Round>,
    /// The number of the next round.
    next_round: u64,
    /// States whose lines may have a new first job.
    stale: Vec<StateId>,
    /// From which number on idle jobs are looked for again, if too many wait.
    sweep_at: u64,
}

/// A round that has begun.
struct Round {
    /// The states that it keeps from others; none once they are free.
    ids: Vec<StateId>,
    /// When its time is over.
    until: Instant,
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
    /// The number of the round.
    pub(super) round: u64,
    pub(super) jobs: Vec<Job>,
    pub(super) ids: Vec<StateId>,
}

impl Queue {
    /// An empty queue, for so many rounds at once.
    pub(super) fn new(rounds: usize) -> Self {
        Self {
            waiting: HashMap::new(),
            lines: HashMap::new(),
            ready: VecDeque::new(),
            number: 0,
            free: rounds,
            rounds: BTreeMap::new(),
            next_round: 0,
            stale: Vec::new(),
            sweep_at: 0,
        }
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

    /// Takes the next round, whose time is over at `until`, or `None` if no job is ready, or no further round may begin.
    pub(super) fn next(&mut self, until: Instant) -> Option<Batch> {
        if self.free == 0 {
            return None;
        }
        let (jobs, ids) = self.take_ready();
        self.look_at_stale();
        if jobs.is_empty() {
            return None;
        }
        self.free -= 1;
        let round = self.next_round;
        self.next_round += 1;
        self.rounds.insert(round, Round { ids: ids.clone(), until });
        Some(Batch { round, jobs, ids })
    }

    /// Takes back the states of rounds whose time is over, and the places of those that are late for long.
    pub(super) fn reclaim(&mut self, now: Instant) {
        let over: Vec<u64> =
            self.rounds.iter().filter(|(_, round)| round.until < now).map(|(round, _)| *round).collect();
        for round in over {
            self.release(round);
            if self.rounds.get(&round).is_some_and(|round| round.until + LATE < now) {
                self.ended(round);
            }
        }
    }

    /// Takes jobs that are ready, and those behind them, in the order in which they came, with their states in order.
    fn take_ready(&mut self) -> (Vec<Job>, Vec<StateId>) {
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
        ids.sort_unstable();
        jobs.sort_unstable_by_key(|(number, _)| *number);
        (jobs.into_iter().map(|(_, job)| job).collect(), ids)
    }

    /// Notes that the states of a round are free again, unless they were taken back.
    pub(super) fn release(&mut self, round: u64) {
        let ids = self.rounds.get_mut(&round).map(|round| mem::take(&mut round.ids)).unwrap_or_default();
        for id in &ids {
            if let Some(line) = self.lines.get_mut(id) {
                line.is_busy = false;
            }
            self.look_at(id);
        }
        self.look_at_stale();
    }

    /// Notes that a round has ended, unless its place was taken back.
    pub(super) fn ended(&mut self, round: u64) {
        self.release(round);
        if self.rounds.remove(&round).is_some() {
            self.free += 1;
        }
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
mod tests;
