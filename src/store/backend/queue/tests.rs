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
