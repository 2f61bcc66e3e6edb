//! Tests of the queue: its order, its limits and its bounds on time, as examples and by random
//! traces.

use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::samples::{self, Waiting, timeout};
use super::*;

/// A queue of decisions of one check each, and those who wait for them.
fn queue_of(decisions: u16) -> (Queue, Vec<Waiting>) {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let add = |slot| {
        let (job, waiting) = samples::decision(slot, 1, timeout(now, 100));
        queue.add(job).0.expect("there is room");
        waiting
    };
    let waiting = (0..decisions).map(add).collect();
    (queue, waiting)
}

fn slots<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<u16> {
    jobs.into_iter().map(|job| job.slot).collect()
}

#[test]
fn jobs_leave_in_the_order_in_which_they_came_and_at_most_as_many_checks_as_the_limit() {
    let (mut queue, _waiting) = queue_of(7);
    assert_eq!(slots(&queue.take(3)), [0, 1, 2]);
    assert_eq!(slots(&queue.take(3)), [3, 4, 5]);
    assert_eq!(slots(&queue.take(3)), [6]);
    assert!(queue.take(3).is_empty() && queue.is_empty());
}

#[test]
fn a_job_of_more_checks_than_the_limit_leaves_alone() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let jobs = [(0, 5), (1, 2), (2, 2)].map(|(slot, checks)| samples::decision(slot, checks, timeout(now, 1)));
    let (jobs, _waiting): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    for job in jobs {
        queue.add(job).0.expect("there is room");
    }
    assert_eq!(slots(&queue.take(3)), [0]);
    assert_eq!(slots(&queue.take(3)), [1], "two of two do not fit");
    assert_eq!(slots(&queue.take(3)), [2]);
}

#[test]
fn jobs_that_are_put_back_leave_first_and_in_their_order() {
    let (mut queue, _waiting) = queue_of(5);
    let taken = queue.take(2);
    queue.put_back(taken.into_iter());
    assert_eq!(slots(&queue.take_all()), [0, 1, 2, 3, 4]);
}

#[test]
fn decisions_whose_callers_disconnected_are_not_sent_and_settlements_are() {
    for most in [3, 100] {
        let (mut queue, mut waiting) = queue_of(6);
        queue.add(samples::settlement(6, 1, timeout(Instant::now(), 100))).0.expect("there is room");
        waiting.drain(1..4).for_each(drop);
        assert_eq!(slots(&queue.take(most)), [0, 4, 5, 6][..most.min(4)]);
    }
}

#[test]
fn too_many_decisions_are_given_back_and_settlements_never() {
    let (mut queue, mut waiting) = queue_of(u16::MAX);
    let now = Instant::now();
    let mut add = |queue: &mut Queue| {
        let (job, waits) = samples::decision(0, 1, timeout(now, 100));
        waiting.push(waits);
        queue.add(job).0.is_ok()
    };
    assert!(add(&mut queue), "it is the last of 65,536");
    assert!(!add(&mut queue));
    queue.add(samples::settlement(1, 1, timeout(now, 100))).0.expect("settlements are bounded elsewhere");
    assert!(!add(&mut queue));
    assert_eq!((queue.take(2).len(), queue.checks), (2, MOST_WAITING - 1));
    assert!(add(&mut queue), "there is room again");
}

#[test]
fn decisions_are_taken_from_among_settlements_which_stay_in_their_order() {
    let (mut queue, _waiting) = queue_of(3);
    let now = Instant::now();
    for slot in [10, 11] {
        queue.add(samples::settlement(slot, 2, timeout(now, 100))).0.expect("there is room");
    }
    let (last, _waits) = samples::decision(3, 1, timeout(now, 100));
    queue.add(last).0.expect("there is room");
    let (later, _waits_too) = samples::decision(4, 1, timeout(now + Duration::from_millis(1), 100));
    queue.add(later).0.expect("there is room");
    assert_eq!(slots(&queue.take_decisions(now)), [0, 1, 2, 3], "what was queued by then");
    assert_eq!((slots(&queue.take_all()), queue.checks), (vec![10, 11, 4], 0));
}

#[test]
fn who_is_late_is_taken_and_the_next_one_is_known() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    assert_eq!(queue.first_late(), None);
    let waits = [300, 100, 200];
    let (jobs, _waiting): (Vec<_>, Vec<_>) =
        waits.map(|after| samples::decision(after, 2, timeout(now, after.into()))).into_iter().unzip();
    for job in jobs {
        queue.add(job).0.expect("there is room");
    }
    let (sender, _receiver) = oneshot::channel();
    queue.borrow(Borrower { sender, timeout: timeout(now, 150) }).0.expect("there is room");
    for (at, late, borrowers, next) in [
        (99, vec![], 0, Some(100)),
        (100, vec![100], 0, Some(150)),
        (250, vec![200], 1, Some(300)),
        (300, vec![300], 0, None),
    ] {
        let (jobs, late_borrowers) = queue.take_late(timeout(now, at).until);
        assert_eq!((slots(&jobs), late_borrowers.len()), (late, borrowers), "after {at} ms");
        assert_eq!(queue.first_late(), next.map(|next| timeout(now, next).until), "after {at} ms");
    }
    assert!(queue.is_empty() && queue.checks == 0);
}

#[test]
fn too_many_who_want_the_connection_are_given_back() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let borrow = |queue: &mut Queue| {
        let (sender, _) = oneshot::channel();
        queue.borrow(Borrower { sender, timeout: timeout(now, 100) }).0.is_ok()
    };
    assert!((0..MOST_BORROWERS).all(|_| borrow(&mut queue)) && !borrow(&mut queue));
    assert!(!queue.is_empty());
    assert_eq!(queue.take_borrowers().len(), MOST_BORROWERS);
    assert!(borrow(&mut queue));
}

#[test]
fn a_busy_lane_is_woken_only_for_what_is_late_before_it_looks() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let is_due = |queue: &mut Queue, late_in| queue.add(samples::settlement(1, 1, timeout(now, late_in))).1;
    assert!(is_due(&mut queue, 100), "nothing is on its way");
    queue.is_busy = true;
    assert!(is_due(&mut queue, 100), "nobody looks at the clock");
    queue.watched_until = Some(now + Duration::from_millis(100));
    assert!(!is_due(&mut queue, 100) && !is_due(&mut queue, 200));
    assert!(is_due(&mut queue, 99));
}

/// Something that happens to a queue.
#[derive(Clone, Debug)]
enum Step {
    Add {
        checks: usize,
        wait: u64,
        settles: bool,
    },
    /// One of the callers disconnects.
    Leaves(usize),
    Take(usize),
    /// The last so many of what was taken come back.
    PutBack(usize),
    TakeDecisions,
    TakeLate(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let add = || (1..5_usize, 1..100_u64, any::<bool>());
    let step = prop_oneof![
        4 => add().prop_map(|(checks, wait, settles)| Step::Add { checks, wait, settles }),
        1 => (0..20_usize).prop_map(Step::Leaves),
        2 => (1..12_usize).prop_map(Step::Take),
        1 => (0..4_usize).prop_map(Step::PutBack),
        1 => Just(Step::TakeDecisions),
        1 => (0..100_u64).prop_map(Step::TakeLate),
    ];
    vec(step, 1..80)
}

/// A queue, and what it should hold.
struct Traced {
    queue: Queue,
    start: Instant,
    next: u16,
    waiting: HashMap<u16, Waiting>,
    settles: HashMap<u16, bool>,
    /// What waits, in its order.
    order: Vec<u16>,
    taken: Vec<Job>,
}

impl Traced {
    fn new() -> Self {
        let (queue, start) = (Queue::default(), Instant::now());
        Self {
            queue,
            start,
            next: 0,
            waiting: HashMap::new(),
            settles: HashMap::new(),
            order: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn is_wanted(&self, slot: u16) -> bool {
        self.settles[&slot] || self.waiting.contains_key(&slot)
    }

    fn add(&mut self, checks: usize, timeout: Timeout, settles: bool) {
        let slot = self.next;
        self.next += 1;
        let job = if settles {
            samples::settlement(slot, checks, timeout)
        } else {
            let (job, waiting) = samples::decision(slot, checks, timeout);
            self.waiting.insert(slot, waiting);
            job
        };
        self.queue.add(job).0.expect("there is room");
        self.settles.insert(slot, settles);
        self.order.push(slot);
    }

    /// The jobs taken came first, except for idle ones.
    fn took(&mut self, jobs: Vec<Job>, most: usize) {
        let rest = slots(&self.queue.jobs);
        let (first, kept) = self.order.split_at(self.order.len() - rest.len());
        assert_eq!(kept, rest);
        let wanted: Vec<u16> = first.iter().copied().filter(|slot| self.is_wanted(*slot)).collect();
        assert_eq!(slots(&jobs), wanted);
        let checks: usize = jobs.iter().map(|job| job.request.size()).sum();
        assert!(checks <= most || jobs.len() == 1, "{checks} checks of {most}");
        if let Some(next) = self.queue.jobs.front() {
            assert!(checks + next.request.size() > most && !jobs.is_empty(), "there was room for more");
        }
        self.order = rest;
        self.taken = jobs;
    }

    fn take_step(&mut self, step: &Step) {
        match *step {
            Step::Add { checks, wait, settles } => self.add(checks, timeout(self.start, wait), settles),
            Step::Leaves(which) => {
                let slot = self.order.get(which).copied().unwrap_or_default();
                self.waiting.remove(&slot);
            }
            Step::Take(most) => {
                let jobs = self.queue.take(most);
                self.took(jobs, most);
            }
            Step::PutBack(most) => {
                let jobs = self.taken.split_off(self.taken.len().saturating_sub(most));
                self.order.splice(..0, slots(&jobs));
                self.queue.put_back(jobs.into_iter());
            }
            Step::TakeDecisions => {
                let decisions = self.queue.take_decisions(self.start);
                let (settlements, others): (Vec<_>, Vec<_>) = self.order.iter().partition(|slot| self.settles[slot]);
                let wanted: Vec<u16> = others.into_iter().filter(|slot| self.is_wanted(*slot)).collect();
                assert_eq!(slots(&decisions), wanted);
                self.order = settlements;
            }
            Step::TakeLate(after) => {
                let now = timeout(self.start, after).until;
                let (late, _) = self.queue.take_late(now);
                assert!(late.iter().all(|job| job.timeout.until <= now));
                assert!(self.queue.jobs.iter().all(|job| job.timeout.until > now));
                let late = slots(&late);
                self.order.retain(|slot| !late.contains(slot));
                let first = self.queue.jobs.iter().map(|job| job.timeout.until).min();
                assert_eq!(self.queue.first_late(), first, "it is exact after a sweep");
            }
        }
    }

    fn is_consistent(&self) {
        assert_eq!(slots(&self.queue.jobs), self.order);
        let checks: usize = self.queue.jobs.iter().map(|job| job.request.size()).sum();
        assert_eq!(self.queue.checks, checks);
        let first = self.queue.jobs.iter().map(|job| job.timeout.until).min();
        assert!(first.is_none_or(|first| self.queue.first_late().is_some_and(|late| late <= first)));
    }
}

proptest! {
    #[test]
    fn order_checks_and_the_first_deadline_are_right_whatever_happens(steps in steps()) {
        let mut traced = Traced::new();
        for step in &steps {
            traced.take_step(step);
            traced.is_consistent();
        }
    }
}
