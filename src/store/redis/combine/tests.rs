//! That nobody is left waiting, and that all leave in order.

use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{hint, thread};

use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::store::redis::job::Caller;
use crate::store::redis::reply::Answered;
use crate::store::redis::request::Request;
use crate::store::{Check, Counter};
use crate::{Key, Quota};

fn request(key: usize) -> Request {
    let key = Key::new("k", key.to_string());
    let counter = Counter { policy: "p".into(), key, quota: Quota::per_second(1) };
    Request::new("t", &[Check::new(counter, 1)])
}

fn job(key: usize) -> (Job, oneshot::Receiver<Result<Answered, Error>>) {
    let (answer, answered) = oneshot::channel();
    (Job { request: request(key), caller: Caller::Waits(answer) }, answered)
}

fn settlement(key: usize) -> Job {
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("it has one");
    Job { request: request(key), caller: Caller::None(permit) }
}

fn keys(batch: &Batch) -> Vec<Option<String>> {
    batch.jobs.iter().map(|job| job.request.key().map(str::to_owned)).collect()
}

/// Joins a request and does what falls to it, then waits for its answer.
fn ask(combiner: &Arc<Combiner>) -> bool {
    let (job, mut answered) = job(0);
    let mut next = combiner.join(job);
    while let Some(mut batch) = next {
        batch.answer(Err(no_decision()));
        next = batch.next();
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        if answered.try_recv().is_ok() {
            return true;
        }
        thread::yield_now();
    }
    false
}

#[test]
fn a_request_that_comes_as_the_last_call_ends_is_not_left_waiting() {
    let (combiner, turn) = (Arc::new(Combiner::new(0, MOST_CHECKS, &Arc::default())), Arc::new(Barrier::new(3)));
    let callers = (0..3).map(|_| {
        let (combiner, turn) = (Arc::clone(&combiner), Arc::clone(&turn));
        // Nobody joins after the third, who would take along one left behind.
        let asked = move |_: &u32| {
            turn.wait();
            for _ in 0..fastrand::u32(..200) {
                hint::spin_loop();
            }
            ask(&combiner)
        };
        thread::spawn(move || (0..50_000).filter(asked).count())
    });
    let callers: Vec<_> = callers.collect();
    for caller in callers {
        assert_eq!(caller.join().expect("no caller panics"), 50_000, "a request was left waiting");
    }
}

#[test]
fn who_went_away_is_in_no_batch_and_the_others_leave_in_order() {
    for batch_size in [MOST_CHECKS, 3] {
        let waiting = Arc::default();
        let combiner = Arc::new(Combiner::new(0, batch_size, &waiting));
        let mut call = combiner.join_settlement(settlement(0)).expect("there is no other call");
        let joined = |(job, answered)| {
            assert!(combiner.join(job).is_none(), "a settlement is to be sent first");
            Some(answered)
        };
        let mut callers: Vec<_> = (0..12).map(job).map(joined).collect();
        callers.iter_mut().step_by(3).for_each(|caller| *caller = None);
        call.is_sent();
        let mut left = Vec::new();
        while let Some(next) = call.next() {
            assert!(next.checks() <= batch_size);
            left.extend(keys(&next));
            call = next;
        }
        let stayed = (0..12).filter(|caller| caller % 3 != 0).map(|caller| request(caller).key().map(str::to_owned));
        assert_eq!(left, stayed.collect::<Vec<_>>());
        assert_eq!((waiting.load(Ordering::Relaxed), combiner.state().calls), (0, 0));
    }
}

#[test]
fn no_request_leaves_before_a_settlement_that_came_first() {
    let combiner = Arc::new(Combiner::new(0, MOST_CHECKS, &Arc::default()));
    let [mut first, mut second] = [0, 1].map(|key| combiner.join(job(key).0).expect("it need not wait"));
    assert!(combiner.join_settlement(settlement(2)).is_none(), "it leaves with the next call");
    let mut call = first.next().expect("the settlement waits");
    let (third, _answered) = job(3);
    assert!(combiner.join(third).is_none(), "the settlement was taken, and is not sent");
    assert!(second.next().is_none(), "nor does it leave with another call that has ended");
    call.is_sent();
    let (fourth, _answered) = job(4);
    let both = combiner.join(fourth).expect("there is room for a second call");
    assert_eq!(keys(&call), [request(2).key().map(str::to_owned)]);
    assert_eq!(keys(&both), [3, 4].map(|key| request(key).key().map(str::to_owned)));
    drop((both, call));
    assert_eq!(combiner.state().calls, 0);
}

#[test]
fn a_settlement_that_is_never_sent_holds_nobody() {
    let combiner = Arc::new(Combiner::new(0, MOST_CHECKS, &Arc::default()));
    drop(combiner.join_settlement(settlement(0)).expect("there is no other call"));
    assert!(combiner.join(job(1).0).is_some());
    let call = combiner.join_settlement(settlement(2));
    assert!(call.is_some_and(|mut call| call.next().is_none()) && combiner.join(job(3).0).is_some());
}
