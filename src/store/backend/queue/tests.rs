//! Rounds of jobs, and random histories of them.

use proptest::prelude::*;

use super::*;
use crate::core::{Key, Quota};
use crate::store::backend::job::{Waiter, Work};
use crate::store::{Check, Counter};

fn counter(key: u8) -> Counter {
    Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), Quota::per_second(1))
}

fn job(keys: &[u8]) -> (Job, Waiter) {
    let checks: Vec<Check> = keys.iter().map(|key| Check::new(counter(*key), 1)).collect();
    Job::new(Work::decide(&checks))
}

/// A time that no test reaches.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
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
        rounds.extend(queue.next(soon()));
    }
    assert_eq!(rounds.iter().map(keys).collect::<Vec<_>>(), [["1"], ["3"]]);
    queue.ended(rounds[0].round);
    let next = queue.next(soon()).expect("three wait");
    assert_eq!(keys(&next), ["1", "21", "2"]);
    assert!(queue.next(soon()).is_none());
}

#[test]
fn the_last_round_takes_all_that_is_ready() {
    let mut queue = Queue::new(1);
    let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = (0..9).map(|key| job(&[key])).unzip();
    for job in jobs {
        assert!(queue.push(job));
    }
    assert_eq!(queue.next(soon()).expect("all are ready").jobs.len(), 9);
}

#[test]
fn who_left_holds_up_nobody() {
    let mut queue = Queue::new(4);
    let ((first, _waits), (left, leaves), (second, _too)) = (job(&[1]), job(&[1, 2]), job(&[2]));
    assert!(queue.push(first));
    let round = queue.next(soon()).expect("it is ready");
    assert!(queue.push(left) && queue.push(second));
    drop(leaves);
    assert!(queue.next(soon()).is_none(), "it is not known before the line moves");
    queue.release(round.round);
    assert_eq!(keys(&queue.next(soon()).expect("the other is first now")), ["2"]);
}

#[test]
fn thousands_who_left_are_no_deep_recursion_and_make_room() {
    let mut queue = Queue::new(4);
    let (first, _waits) = job(&[1]);
    assert!(queue.push(first));
    let round = queue.next(soon()).expect("it is ready");
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
    queue.ended(round.round);
    assert_eq!(queue.next(soon()).expect("one is left").jobs.len(), 1);
}

#[test]
fn states_and_places_of_rounds_that_nothing_drives_are_taken_back_once() {
    let mut queue = Queue::new(1);
    let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = (0..4).map(|_| job(&[1])).unzip();
    let (start, budget) = (Instant::now(), Duration::from_millis(100));
    let mut rounds = Vec::new();
    for (index, job) in jobs.into_iter().enumerate() {
        assert!(queue.push(job));
        let now = start + (LATE + budget * 2) * u32::try_from(index).expect("few");
        queue.reclaim(now);
        rounds.extend(queue.next(now + budget));
    }
    assert_eq!(rounds.len(), 4, "each has the state and the only place after the one before");
    // The first three return after all: the state and the place are the last one's.
    for round in &rounds[..3] {
        queue.release(round.round);
        queue.ended(round.round);
    }
    let (other, _waits) = job(&[1]);
    assert!(queue.push(other));
    assert!(queue.next(soon()).is_none());
    queue.ended(rounds[3].round);
    assert_eq!(keys(&queue.next(soon()).expect("it is free")), ["1"]);
    assert_eq!(queue.free, 0);
}

#[derive(Clone, Debug)]
enum Event {
    Reclaim,
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
        1 => Just(Event::Reclaim),
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
                    rounds[place].ids.clear();
                    queue.release(rounds[place].round);
                }
                Event::End(place) if !rounds.is_empty() => {
                    let round = rounds.swap_remove(place % rounds.len());
                    queue.ended(round.round);
                    released += 1;
                }
                Event::Reclaim => {
                    // Their time is over, but they are not late for long.
                    queue.reclaim(soon() + Duration::from_secs(1));
                    for round in &mut rounds {
                        round.ids.clear();
                    }
                }
                _ => {}
            }
            rounds.extend(std::iter::from_fn(|| queue.next(soon())));
            let mut busy: Vec<&StateId> = rounds.iter().flat_map(|round| &round.ids).collect();
            let all = busy.len();
            busy.sort_unstable();
            busy.dedup();
            prop_assert_eq!(busy.len(), all);
            prop_assert!(rounds.len() <= 3);
        }
        while let Some(round) = rounds.pop() {
            queue.ended(round.round);
            released += 1;
            rounds.extend(std::iter::from_fn(|| queue.next(soon())));
        }
        prop_assert!(released <= 60);
        prop_assert!(queue.waiting.values().all(Job::is_idle), "a job was forgotten");
        prop_assert_eq!(queue.free, 3);
    }
}
