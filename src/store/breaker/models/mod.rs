//! Models of breakers that are used by several threads at once, tried by loom in every order.
//!
//! `shared.rs` is compiled once more here, with loom's lock and atomics. Whichever thread comes first, the models check
//! what callers rely on: there is one probe in an interval, exactly one thread opens or closes the breaker and learns
//! that it did, no outcome is lost, and no outcome counts in a later round.

use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use shared::{Breaker, BreakerState, CallPermit, FIRST_WAIT_MS, MAX_IN_ROW, Recent};

#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "it is compiled once more with another lock, and not all of it is used"
)]
#[path = "../shared.rs"]
mod shared;

/// Loom's versions of the items by which [`shared`] changes states.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

/// Takes a permit. Panics if there is none.
#[track_caller]
fn acquire(breaker: &Breaker, now: u64) -> CallPermit {
    breaker.acquire(|| now).expect("a permit")
}

/// Makes this number of calls in sequence, all of which fail.
fn fail(breaker: &Breaker, times: u64, now: u64) {
    (0..times).for_each(|_| _ = breaker.failed(acquire(breaker, now), now));
}

/// The work of a thread. Returns whether the thread has opened or closed the breaker, or may probe.
type Part = Box<dyn FnOnce(&Breaker) -> bool>;

fn part(part: impl FnOnce(&Breaker) -> bool + 'static) -> Part {
    Box::new(part)
}

fn asks(now: u64) -> Part {
    part(move |breaker| breaker.acquire(|| now).is_some())
}

fn succeeds(permit: CallPermit, now: u64) -> Part {
    part(move |breaker| breaker.succeeded(permit, || now))
}

fn fails(permit: CallPermit, now: u64) -> Part {
    part(move |breaker| breaker.failed(permit, now).is_some())
}

/// Runs the threads concurrently, with a breaker that failed this number of times at 0. Tries all orders with at most
/// two switches away from threads that could continue, and checks the results of the threads each time.
fn explore<const N: usize>(
    failures: u64,
    parts: impl Fn(&Breaker) -> [Part; N] + Send + Sync + 'static,
    then: impl Fn(&Breaker, [bool; N]) + Send + Sync + 'static,
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let breaker = Arc::new(Breaker::new());
        fail(&breaker, failures, 0);
        let threads = parts(&breaker).map(|part| {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || part(&breaker))
        });
        then(&breaker, threads.map(|thread| thread.join().expect("it ends")));
    });
}

fn count(results: &[bool]) -> usize {
    results.iter().filter(|result| **result).count()
}

/// A thread with an old time may lose to one with a later time. So in two intervals there is at least one probe, and at
/// most two.
#[test]
fn one_of_those_who_come_in_one_interval_probes() {
    for (times, most) in [([50, 51, 52], 1), ([50, 60, 150], 2)] {
        let asking = move |_: &Breaker| times.map(asks);
        explore(MAX_IN_ROW, asking, move |breaker, probes| {
            assert!((1..=most).contains(&count(&probes)) && count(&probes[..2]) <= 1, "{probes:?} at {times:?}");
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
        });
    }
}

#[test]
fn one_of_several_probes_that_succeed_closes() {
    let probes = |breaker: &Breaker| [50, 150, 350].map(|now| succeeds(acquire(breaker, now), 360));
    explore(MAX_IN_ROW, probes, |breaker, closed| {
        assert_eq!((count(&closed), breaker.state()), (1, BreakerState::Closed));
    });
}

#[test]
fn a_probe_that_succeeds_closes_it_whatever_the_others_do_meanwhile() {
    let probes = |breaker: &Breaker| {
        let [first, second, third] = [50, 150, 350].map(|now| acquire(breaker, now));
        let leaves = part(move |breaker| {
            breaker.gave_up(third, || 360);
            false
        });
        [succeeds(first, 360), fails(second, 360), leaves]
    };
    explore(MAX_IN_ROW, probes, |breaker, [closed, ..]| {
        assert!(closed);
        assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Closed, None));
    });
}

#[test]
fn it_opens_once_and_at_the_last_failure_however_many_are_reported_at_once() {
    let failures = |breaker: &Breaker| [(); 3].map(|()| fails(acquire(breaker, 7), 7));
    explore(MAX_IN_ROW - 2, failures, |breaker, opened| {
        assert_eq!((count(&opened), breaker.state()), (1, BreakerState::Open));
        assert_eq!(breaker.failing_since(), Some(0));
        assert_eq!(breaker.next_probe(7).as_millis(), FIRST_WAIT_MS.into());
    });
}

#[test]
fn no_failure_and_no_reply_is_forgotten() {
    let reports = |breaker: &Breaker| {
        let [first, second, third] = [(); 3].map(|()| acquire(breaker, 7));
        [fails(first, 7), fails(second, 7), succeeds(third, 7)]
    };
    explore(1, reports, |breaker, changes| {
        let recent = breaker.recent();
        assert_eq!((count(&changes), recent.failed, recent.succeeded), (0, 3, 1));
        assert!(recent.in_row <= 2, "the reply came after the first failure");
    });
}

/// Calls from before it opened are reported while a probe closes it.
#[test]
fn reports_of_an_earlier_round_change_nothing_whatever_the_later_one_does() {
    let reports = |breaker: &Breaker| {
        let [first, second] = [(); 2].map(|()| acquire(breaker, 0));
        fail(breaker, MAX_IN_ROW, 0);
        [succeeds(first, 60), fails(second, 60), succeeds(acquire(breaker, FIRST_WAIT_MS), 60)]
    };
    explore(0, reports, |breaker, results| {
        assert_eq!(results, [false, false, true]);
        assert_eq!((breaker.state(), breaker.recent()), (BreakerState::Closed, Recent::default()));
    });
}

/// A thread that reports an early failure is delayed while the breaker opens, a probe succeeds, and a minute later the
/// store fails again.
#[test]
fn failures_in_a_row_do_not_begin_before_the_last_reply() {
    let parts = |breaker: &Breaker| {
        let (late, permits) = (acquire(breaker, 10), [(); 5].map(|()| acquire(breaker, 20)));
        let others = part(move |breaker| {
            for permit in permits {
                breaker.failed(permit, 20);
            }
            assert!(breaker.succeeded(acquire(breaker, 20 + FIRST_WAIT_MS), || 70));
            fail(breaker, 1, 60_000);
            true
        });
        [fails(late, 10), others]
    };
    explore(0, parts, |breaker, _| assert_eq!(breaker.failing_since(), Some(60_000)));
}

/// A thread that closed the breaker is delayed before it records the time, while other threads open and close the
/// breaker again. The later record remains.
#[test]
fn waits_grow_from_the_last_time_it_closed_whoever_reports_an_earlier_one() {
    let parts = |breaker: &Breaker| {
        let later = part(|breaker| {
            let permits: Vec<_> = (0..MAX_IN_ROW).filter_map(|_| breaker.acquire(|| 61)).collect();
            let is_closed = permits.len() == 5 && permits.iter().all(|permit| !permit.is_probe());
            if is_closed {
                for permit in permits {
                    breaker.failed(permit, 61);
                }
                let probe = acquire(breaker, 1_000);
                acquire(breaker, 2_000);
                assert!(breaker.succeeded(probe, || 2_001));
            }
            is_closed
        });
        [succeeds(acquire(breaker, 50), 60), later]
    };
    explore(MAX_IN_ROW, parts, |breaker, [_, closed_again]| {
        // Once all threads have reported, the last record remains: the breaker closed after two or three probes.
        if closed_again {
            fail(breaker, MAX_IN_ROW, 2_002);
            assert!(breaker.next_probe(2_002).as_millis() >= 200);
        }
    });
}
