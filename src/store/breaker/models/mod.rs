//! Models of breakers that are used by several threads at once, tried by loom in every order.
//!
//! `shared.rs` is compiled once more here, with loom's lock and atomics. The models claim what callers rely
//! on whichever thread comes first: one probe an interval, one thread that opens or closes the
//! breaker and sees that it did, no outcome lost, and none counted in a later round.

use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use shared::{Breaker, BreakerState, FIRST_WAIT_MS, MOST_IN_ROW, Permit, Recent};

#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "it is compiled once more with another lock, and not all of it is used"
)]
#[path = "../shared.rs"]
mod shared;

/// What [`shared`] changes states with here.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

/// A new breaker.
fn closed() -> Arc<Breaker> {
    Arc::new(Breaker::new())
}

/// Takes a permit, which there has to be.
#[track_caller]
fn acquire(breaker: &Breaker, now: u64) -> Permit {
    breaker.acquire(|| now).expect("a permit")
}

/// Reports a failure.
fn fails(breaker: &Breaker, permit: Permit, now: u64) {
    breaker.failed(permit, now);
}

/// Makes so many calls that fail, one after the other.
fn fail(breaker: &Breaker, times: u64, now: u64) {
    (0..times).for_each(|_| fails(breaker, acquire(breaker, now), now));
}

/// A breaker that opened at 0.
fn opened() -> Arc<Breaker> {
    let breaker = closed();
    fail(&breaker, MOST_IN_ROW, 0);
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker
}

/// Runs things on threads of their own, and returns their results.
fn at_once<R: Send + 'static>(
    breaker: &Arc<Breaker>,
    things: impl IntoIterator<Item = Box<dyn FnOnce(&Breaker) -> R>>,
) -> Vec<R> {
    let begin = |thing: Box<dyn FnOnce(&Breaker) -> R>| {
        let breaker = Arc::clone(breaker);
        thread::spawn(move || thing(&breaker))
    };
    let threads: Vec<_> = things.into_iter().map(begin).collect();
    threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
}

/// Something that a thread does with the breaker.
fn thing<R>(thing: impl FnOnce(&Breaker) -> R + 'static) -> Box<dyn FnOnce(&Breaker) -> R> {
    Box::new(thing)
}

/// Tries a model in all orders with at most two switches away from threads that could go on.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Three requests within one interval of an open breaker: one of them probes.
#[test]
fn one_of_those_who_come_in_one_interval_probes() {
    explore(|| {
        let breaker = opened();
        let attempts = [0, 1, 2].map(|later| thing(move |breaker| breaker.acquire(|| FIRST_WAIT_MS + later)));
        let probes = at_once(&breaker, attempts).into_iter().flatten().count();
        assert_eq!((probes, breaker.state()), (1, BreakerState::HalfOpen));
    });
}

/// Two requests in the first interval and one in the second. A thread with an old time may lose to
/// one with a later time, so one probe is enough, and two are the most.
#[test]
fn of_those_who_come_in_two_intervals_at_most_two_probe() {
    explore(|| {
        let breaker = opened();
        // The second interval begins 100 ms after the first one did.
        let attempts = [50, 60, 150].map(|now| thing(move |breaker| breaker.acquire(|| now)));
        let permits = at_once(&breaker, attempts);
        let probes = permits.iter().flatten().count();
        let in_the_first = permits[..2].iter().flatten().count();
        assert!((1..=2).contains(&probes) && in_the_first <= 1, "{permits:?}");
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        permits.into_iter().flatten().for_each(|permit| fails(&breaker, permit, 160));
        assert_eq!(breaker.state(), BreakerState::Open, "none is forgotten");
    });
}

/// Three probes in flight with three outcomes at once: the reply wins whichever comes first.
#[test]
fn a_probe_that_succeeds_closes_it_whatever_the_others_do_meanwhile() {
    explore(|| {
        let breaker = opened();
        let [first, second, third] = [50, 150, 350].map(|now| acquire(&breaker, now));
        let results = at_once(
            &breaker,
            [
                thing(move |breaker| breaker.succeeded(first, || 360)),
                thing(move |breaker| breaker.failed(second, 360).is_some_and(|_| false)),
                thing(move |breaker| {
                    breaker.gave_up(third, || 360);
                    false
                }),
            ],
        );
        assert!(results[0], "it closed the breaker");
        assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Closed, None));
    });
}

/// Three replies to probes at once: one caller sees that it closed the breaker, and logs it.
#[test]
fn of_probes_that_succeed_at_once_one_closes() {
    explore(|| {
        let breaker = opened();
        let probes = [50, 150, 350].map(|now| acquire(&breaker, now));
        let results = at_once(&breaker, probes.map(|probe| thing(move |breaker| breaker.succeeded(probe, || 360))));
        assert_eq!(results.iter().filter(|closed| **closed).count(), 1);
        assert_eq!(breaker.state(), BreakerState::Closed);
    });
}

/// The last failures in a row are reported at once: one caller sees that it opened the breaker.
#[test]
fn it_opens_once_and_at_the_last_failure_however_many_are_reported_at_once() {
    explore(|| {
        let breaker = closed();
        fail(&breaker, MOST_IN_ROW - 2, 7);
        let permits = [(); 3].map(|()| acquire(&breaker, 7));
        let results = at_once(&breaker, permits.map(|permit| thing(move |breaker| breaker.failed(permit, 7))));
        assert_eq!(results.iter().flatten().collect::<Vec<_>>(), [&BreakerState::Closed], "one of them opens it");
        assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Open, Some(7)));
        assert_eq!(breaker.next_probe(7).as_millis(), FIRST_WAIT_MS.into());
    });
}

/// Two failures and a reply within a window, reported at once: all are in the counts.
#[test]
fn no_failure_and_no_reply_is_forgotten() {
    explore(|| {
        let breaker = closed();
        fail(&breaker, 1, 7);
        let permits = [(); 3].map(|()| acquire(&breaker, 7));
        let replied = permits[2];
        at_once(
            &breaker,
            [
                thing(move |breaker| fails(breaker, permits[0], 7)),
                thing(move |breaker| fails(breaker, permits[1], 7)),
                thing(move |breaker| assert!(!breaker.succeeded(replied, || 7))),
            ],
        );
        let recent = breaker.recent();
        assert_eq!((recent.failed, recent.succeeded), (3, 1));
        assert!(recent.in_row <= 2, "the reply came after the first failure");
    });
}

/// Calls from before the breaker opened are reported while a probe closes it: they change nothing,
/// neither before nor after.
#[test]
fn reports_of_an_earlier_round_change_nothing_whatever_the_later_one_does() {
    explore(|| {
        let breaker = closed();
        let late = [(); 2].map(|()| acquire(&breaker, 0));
        fail(&breaker, MOST_IN_ROW, 0);
        let probe = acquire(&breaker, FIRST_WAIT_MS);
        let results = at_once(
            &breaker,
            [
                thing(move |breaker| breaker.succeeded(late[0], || 60)),
                thing(move |breaker| breaker.failed(late[1], 60).is_some()),
                thing(move |breaker| breaker.succeeded(probe, || 60)),
            ],
        );
        assert_eq!(results, [false, false, true]);
        assert_eq!((breaker.state(), breaker.recent()), (BreakerState::Closed, Recent::default()));
    });
}

/// A thread that reports an early failure is held up while a whole outage passes: the beginning of
/// the next one is not overwritten.
#[test]
fn failures_in_a_row_do_not_begin_before_the_last_reply() {
    explore(|| {
        let breaker = closed();
        let late = acquire(&breaker, 10);
        let permits = [(); 5].map(|()| acquire(&breaker, 20));
        let late_one = thing(move |breaker| fails(breaker, late, 10));
        // It opens, a probe succeeds, and a minute later it fails again.
        let others = thing(move |breaker| {
            for permit in permits {
                fails(breaker, permit, 20);
            }
            let probe_at = 20 + FIRST_WAIT_MS;
            assert!(breaker.succeeded(acquire(breaker, probe_at), || probe_at));
            fail(breaker, 1, 60_000);
        });
        at_once(&breaker, [late_one, others]);
        assert_eq!(breaker.failing_since(), Some(60_000));
    });
}

/// A thread that closed the breaker is held up before it notes the time, while others open and
/// close it again: the later note stands.
#[test]
fn waits_grow_from_the_last_time_it_closed_whoever_reports_an_earlier_one() {
    explore(|| {
        let breaker = opened();
        let first = acquire(&breaker, 50);
        let earlier = thing(move |breaker| {
            assert!(breaker.succeeded(first, || 60));
            false
        });
        let later = thing(|breaker| {
            let permits: Vec<_> = (0..MOST_IN_ROW).filter_map(|_| breaker.acquire(|| 61)).collect();
            let closed = permits.iter().all(|permit| !permit.is_probe()) && permits.len() == 5;
            if closed {
                for permit in permits {
                    fails(breaker, permit, 61);
                }
                let second = acquire(breaker, 1_000);
                acquire(breaker, 2_000);
                assert!(breaker.succeeded(second, || 2_001));
            }
            closed
        });
        let results = at_once(&breaker, [earlier, later]);
        // Once all have reported, the last one stands: it closed after two probes, or three.
        if results[1] {
            fail(&breaker, MOST_IN_ROW, 2_002);
            assert!(breaker.next_probe(2_002).as_millis() >= 200);
        }
    });
}
