//! Transactions of jobs, and random histories of them.

use proptest::prelude::*;
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::Instant;

use super::*;
use crate::core::{Error, Key, Quota, kept};
use crate::store::backend::job::{Done, Work};
use crate::store::{Check, Counter};

type Waiter = Receiver<Result<Done, Error>>;

fn counter(key: u8) -> Counter {
    Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), Quota::per_second(1))
}

fn job(keys: &[u8]) -> (Job, Waiter) {
    let checks: Vec<Check> = keys.iter().map(|key| Check::new(counter(*key), 1)).collect();
    let (work, (reply, waiter)) = (Work::Decide(kept(&checks)), oneshot::channel());
    (Job { ids: work.ids(), work, until: Instant::now(), pause: None, reply }, waiter)
}

/// Returns the keys of each job.
fn keys((jobs, _): &Batch) -> Vec<String> {
    jobs.iter().map(|job| job.ids.iter().map(|id| id.as_str()[3..4].to_owned()).collect()).collect()
}

fn end(queue: &mut Queue, (_, ids): &Batch) -> Option<Batch> {
    queue.release(ids);
    queue.free += 1;
    queue.next()
}

#[test]
fn jobs_over_the_states_of_a_transaction_wait_and_go_together() {
    let mut queue = Queue::new(4);
    let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = [&[1][..], &[1], &[2, 1], &[3], &[2]].into_iter().map(job).unzip();
    let begun: Vec<Batch> = jobs.into_iter().filter_map(|job| queue.push(job)).collect();
    assert_eq!(begun.iter().map(keys).collect::<Vec<_>>(), [["1"], ["3"]]);
    let next = end(&mut queue, &begun[0]).expect("three wait");
    assert_eq!(keys(&next), ["1", "21", "2"]);
    assert!(queue.next().is_none());
}

#[test]
fn what_waits_for_a_place_goes_together() {
    let mut queue = Queue::new(1);
    let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = (0..9).map(|key| job(&[key])).unzip();
    let begun: Vec<Batch> = jobs.into_iter().filter_map(|job| queue.push(job)).collect();
    assert_eq!(begun.len(), 1);
    assert_eq!(end(&mut queue, &begun[0]).expect("all may go").0.len(), 8);
}

#[test]
fn many_that_wait_for_one_state_hold_up_no_other() {
    let mut queue = Queue::new(2);
    let (jobs, _waiters): (Vec<Job>, Vec<Waiter>) = (0..2 * MOST_JOBS).map(|_| job(&[1])).unzip();
    let begun: Vec<Batch> = jobs.into_iter().filter_map(|job| queue.push(job)).collect();
    let (other, _waits) = job(&[2]);
    assert_eq!(keys(&queue.push(other).expect("its state is free")), ["2"]);
    assert_eq!(end(&mut queue, &begun[0]).expect("they may go").0.len(), MOST_JOBS);
}

#[test]
fn who_left_holds_up_nobody() {
    let mut queue = Queue::new(4);
    let ((first, _waits), (left, leaves), (second, _too)) = (job(&[1]), job(&[1, 2]), job(&[2]));
    let _first = queue.push(first).expect("it may go");
    assert!(queue.push(left).is_none());
    drop(leaves);
    assert_eq!(keys(&queue.push(second).expect("nobody waits before it")), ["2"]);
}

#[test]
fn so_many_wait_and_no_more() {
    let mut queue = Queue::new(1);
    let (first, _waits) = job(&[1]);
    let begun = queue.push(first).expect("it may go");
    let (jobs, waiters): (Vec<Job>, Vec<Waiter>) = (0..MOST_WAITING).map(|_| job(&[1])).unzip();
    assert!(jobs.into_iter().all(|job| queue.push(job).is_none()));
    assert!(queue.is_full());
    drop(waiters);
    assert!(end(&mut queue, &begun).is_none(), "all of them left");
    assert!(!queue.is_full());
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
    fn no_state_is_in_two_transactions_and_no_job_is_forgotten(
        events in proptest::collection::vec(any_event(), 1..60),
    ) {
        let mut queue = Queue::new(3);
        let (mut waiters, mut begun, mut done) = (Vec::new(), Vec::<Batch>::new(), 0);
        for event in events {
            match event {
                Event::Push(keys) => {
                    let (job, waiter) = job(&keys);
                    waiters.push(waiter);
                    begun.extend(queue.push(job));
                }
                Event::Leave(place) if !waiters.is_empty() => drop(waiters.swap_remove(place % waiters.len())),
                Event::Release(place) if !begun.is_empty() => {
                    let place = place % begun.len();
                    queue.release(&mem::take(&mut begun[place].1));
                    begun.extend(queue.next());
                }
                Event::End(place) if !begun.is_empty() => {
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
        prop_assert!(queue.waiting.iter().all(Job::is_idle), "a job was forgotten");
        prop_assert_eq!(queue.free, 3);
        prop_assert!(queue.busy.is_empty());
    }
}
