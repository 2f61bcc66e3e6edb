//! Tests of the breaker with times that are set, and against a model that keeps every outcome.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::shared::{MOST_IN_ROW, MOST_IN_WINDOW, WINDOW_MS};
use super::*;

fn breaker() -> Breaker {
    Breaker::new()
}

#[track_caller]
fn acquire(breaker: &Breaker, now: u64) -> Permit {
    breaker.acquire(|| now).expect("a permit")
}

#[track_caller]
fn assert_refuses(breaker: &Breaker, now: u64) {
    assert!(breaker.acquire(|| now).is_none(), "no permit is due at {now}");
}

/// A breaker that opened at `now`.
fn opened(now: u64) -> Breaker {
    let breaker = breaker();
    for _ in 0..MOST_IN_ROW {
        breaker.failed(acquire(&breaker, now), now);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker
}

/// A probe at `now` fails at once.
#[track_caller]
fn probe_fails(breaker: &Breaker, now: u64) {
    let probe = acquire(breaker, now);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert_eq!(breaker.failed(probe, now), Some(BreakerState::HalfOpen));
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Reports a reply at `now`; returns whether the breaker closes.
#[track_caller]
fn succeeds(breaker: &Breaker, now: u64) -> bool {
    breaker.succeeded(acquire(breaker, now), || now)
}

/// Reports a failure at `now`; returns whether the breaker opens.
#[track_caller]
fn fails(breaker: &Breaker, now: u64) -> bool {
    breaker.failed(acquire(breaker, now), now).is_some()
}

#[test]
fn it_opens_on_failures_in_a_row_however_slowly_they_come() {
    let breaker = breaker();
    for round in 0..10 {
        let now = round * 10 * WINDOW_MS;
        for failure in 1..MOST_IN_ROW {
            assert!(!fails(&breaker, now + failure * 2 * WINDOW_MS), "failure {failure}");
        }
        assert!(!succeeds(&breaker, now + 9 * WINDOW_MS), "it was never open");
    }
    for failure in 1..MOST_IN_ROW {
        assert!(!fails(&breaker, (100 + 2 * failure) * WINDOW_MS));
    }
    let last = 200 * WINDOW_MS;
    assert_eq!(breaker.failed(acquire(&breaker, last), last), Some(BreakerState::Closed), "it is reported once");
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Makes a call every `step` ms, of which every `nth` fails; returns after how many the breaker opens, if it does.
fn opens_after(nth: u64, step: u64, calls: u64) -> Option<u64> {
    let breaker = breaker();
    let opens = |call: &u64| {
        let now = call * step;
        if call.is_multiple_of(nth) { fails(&breaker, now) } else { succeeds(&breaker, now) }
    };
    (1..=calls).find(opens)
}

#[test]
fn it_opens_when_half_of_the_calls_of_a_second_fail() {
    let ten = 2 * MOST_IN_WINDOW;
    for (nth, step, opens) in [(2, 0, Some(ten)), (2, 50, Some(ten)), (2, 56, None), (3, 1, None), (10, 0, None)] {
        assert_eq!(opens_after(nth, step, 100_000), opens, "every {nth}th, every {step} ms");
    }
}

#[test]
fn few_failures_or_old_ones_do_not_show_a_rate() {
    let breaker = breaker();
    for round in 0..1_000 {
        for call in 1..2 * MOST_IN_WINDOW - 1 {
            let now = round * WINDOW_MS + call;
            let changes = if call % 2 == 1 { fails(&breaker, now) } else { succeeds(&breaker, now) };
            assert!(!changes, "call {call} of round {round}");
        }
        assert!(!succeeds(&breaker, round * WINDOW_MS));
    }
}

#[test]
fn replies_change_nothing_unless_a_failure_was_a_moment_ago() {
    let breaker = breaker();
    let untouched = |breaker: &Breaker| {
        let before = breaker.recent();
        breaker.succeeded(acquire(breaker, 0), || panic!("nobody has to look at the clock"));
        breaker.is_calm() && breaker.recent() == before
    };
    assert!(untouched(&breaker));
    fails(&breaker, 5_000);
    succeeds(&breaker, 5_000 + WINDOW_MS - 1);
    assert_ne!(breaker.recent().succeeded, 0, "it is counted");
    succeeds(&breaker, 5_000 + WINDOW_MS);
    assert!(untouched(&breaker), "the failure is too long ago");
}

#[test]
fn times_that_are_reported_in_another_order_are_of_one_window() {
    let breaker = breaker();
    fails(&breaker, 5_000);
    for now in [4_999, 4_500, 5_001] {
        succeeds(&breaker, now);
        fails(&breaker, now);
    }
    let recent = breaker.recent();
    assert_eq!((recent.failed, recent.succeeded), (4, 3));
}

/// A closed breaker that keeps every outcome.
#[derive(Default)]
struct BreakerModel {
    /// When each outcome was reported since the window began, and whether it was a failure.
    window: Vec<(u64, bool)>,
    in_row: u64,
}

impl BreakerModel {
    /// Whether it opens.
    fn report(&mut self, now: u64, failed: bool) -> bool {
        if self.window.first().is_some_and(|(start, _)| now - start >= WINDOW_MS) {
            self.window.clear();
        }
        if failed || !self.window.is_empty() {
            self.window.push((now, failed));
        }
        self.in_row = if failed { self.in_row + 1 } else { 0 };
        let failures = self.window.iter().filter(|(_, failed)| *failed).count() as u64;
        let rate = failures >= MOST_IN_WINDOW && 2 * failures >= self.window.len() as u64;
        failed && (self.in_row >= MOST_IN_ROW || rate)
    }
}

proptest! {
    #[test]
    fn it_opens_exactly_when_a_model_that_keeps_all_outcomes_does(
        start in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
        failing in 0.1..0.8_f64,
        longest in prop_oneof![Just(2_u64), Just(60), Just(500)],
        traced in vec((any::<u64>(), 0.0..1.0_f64), 1..250),
    ) {
        let (breaker, mut model, mut now) = (breaker(), BreakerModel::default(), start);
        for (wait, chance) in traced {
            now += wait % longest;
            let failed = chance < failing;
            let opened = if failed { fails(&breaker, now) } else { succeeds(&breaker, now) };
            prop_assert_eq!(opened, model.report(now, failed));
            if opened {
                break;
            }
        }
    }
}

#[test]
fn while_it_is_closed_nobody_looks_at_the_clock() {
    let breaker = breaker();
    assert!(breaker.acquire(|| panic!("there is no need to")).is_some());
}

#[test]
fn probes_come_after_50_ms_and_never_more_than_500_ms_apart() {
    let breaker = opened(1_000);
    let mut now = 1_000;
    for wait in [50, 100, 200, 400, 500, 500].into_iter().chain([500; 100]) {
        assert_eq!(breaker.next_probe(now), Duration::from_millis(wait));
        assert_refuses(&breaker, now + wait - 1);
        now += wait;
        assert_eq!(breaker.next_probe(now), Duration::ZERO);
        probe_fails(&breaker, now);
    }
}

#[test]
fn one_request_probes_and_the_others_do_not_wait_for_it() {
    let breaker = opened(0);
    let probe = acquire(&breaker, 50);
    for now in [50, 60, 149] {
        assert_refuses(&breaker, now);
    }
    assert!(breaker.succeeded(probe, || 60), "it closes");
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert_eq!(breaker.next_probe(60), Duration::ZERO);
    acquire(&breaker, 60);
}

#[test]
fn of_those_who_come_at_once_one_probes() {
    let breaker = opened(0);
    let mut other = None;
    let permit = breaker.acquire(|| {
        other = breaker.acquire(|| 50);
        50
    });
    assert!(permit.is_none(), "the other one came first");
    assert!(breaker.succeeded(other.expect("it is time"), || 50));
}

/// Fails as often in a row as opens it, all at one time.
fn reopen(breaker: &Breaker, now: u64) {
    for _ in 1..MOST_IN_ROW {
        assert_eq!(breaker.failed(acquire(breaker, now), now), None);
    }
    assert_eq!(breaker.failed(acquire(breaker, now), now), Some(BreakerState::Closed));
}

#[test]
fn a_breaker_that_closed_opens_after_as_many_failures_as_at_first_and_a_second_later_probes_as_soon() {
    let breaker = opened(0);
    probe_fails(&breaker, 50);
    succeeds(&breaker, 150);
    reopen(&breaker, 150 + WINDOW_MS);
    assert_eq!(breaker.next_probe(150 + WINDOW_MS), Duration::from_millis(50));
}

#[test]
fn a_store_that_replies_to_a_probe_and_fails_again_is_called_ever_more_seldom() {
    let (breaker, mut now) = (opened(0), 0);
    for wait in [50, 100, 200, 400, 500, 500] {
        assert_eq!(breaker.next_probe(now), Duration::from_millis(wait));
        now += wait;
        assert!(succeeds(&breaker, now));
        now += 5;
        reopen(&breaker, now);
    }
}

#[test]
fn a_probe_whose_caller_left_is_made_by_another_a_moment_later() {
    let breaker = opened(0);
    breaker.gave_up(acquire(&breaker, 50), || 60 + FIRST_WAIT_MS);
    assert_eq!(breaker.state(), BreakerState::Open);
    assert_refuses(&breaker, 109);
    assert!(succeeds(&breaker, 110));
}

#[test]
fn the_next_probe_begins_at_most_500_ms_after_the_last_began_whether_or_not_that_has_an_outcome() {
    let breaker = opened(0);
    let (mut now, mut probes) = (0, Vec::new());
    for wait in [50, 100, 200, 400, 500, 500, 500] {
        assert_refuses(&breaker, now + wait - 1);
        now += wait;
        probes.push(acquire(&breaker, now));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
    }
    for probe in &probes[..6] {
        assert_eq!(breaker.failed(*probe, now + 1), Some(BreakerState::HalfOpen));
        assert_eq!(breaker.state(), BreakerState::HalfOpen, "the last one has no outcome yet");
    }
    assert_eq!(breaker.next_probe(now), Duration::from_millis(500), "failures make it no later");
    breaker.failed(probes[6], now + 1);
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn each_probe_in_flight_may_close_it() {
    for which in 0..3 {
        let breaker = opened(0);
        let probes = [50, 150, 350].map(|now| acquire(&breaker, now));
        assert!(breaker.succeeded(probes[which], || 400));
        for late in probes {
            assert!(!breaker.succeeded(late, || 401), "it is closed already");
            assert_eq!(breaker.failed(late, 401), None);
        }
        assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Closed, None));
    }
}

#[test]
fn probes_that_are_never_reported_keep_no_other_from_closing_it() {
    let breaker = opened(0);
    for probe in 0..1_000 {
        acquire(&breaker, 50 + 500 * probe);
    }
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    let probe = acquire(&breaker, 50 + 500 * 1_000);
    assert_eq!(breaker.next_probe(50 + 500 * 1_000), Duration::from_millis(500));
    assert!(breaker.succeeded(probe, || 0));
}

#[test]
fn a_probe_that_was_none_leaves_the_others_as_they_are() {
    let breaker = opened(0);
    let probes = [50, 150].map(|now| acquire(&breaker, now));
    breaker.gave_up(probes[0], || 900);
    assert_eq!((breaker.state(), breaker.next_probe(150)), (BreakerState::HalfOpen, Duration::from_millis(200)));
    breaker.gave_up(probes[1], || 160);
    assert_eq!((breaker.state(), breaker.next_probe(150)), (BreakerState::Open, Duration::from_millis(10)));
    assert!(succeeds(&breaker, 160));
}

#[test]
fn late_replies_to_calls_made_before_it_opened_change_nothing() {
    let breaker = breaker();
    let late = [(); 4].map(|()| acquire(&breaker, 0));
    for _ in 0..MOST_IN_ROW {
        breaker.failed(acquire(&breaker, 0), 0);
    }
    assert!(!breaker.succeeded(late[0], || 1));
    assert_eq!(breaker.failed(late[1], 1), None);
    assert_eq!((breaker.state(), breaker.next_probe(0)), (BreakerState::Open, Duration::from_millis(50)));

    let probe = acquire(&breaker, 50);
    assert!(!breaker.succeeded(late[2], || 50));
    assert_eq!(breaker.state(), BreakerState::HalfOpen, "only the probe closes it");
    breaker.succeeded(probe, || 60);
    assert_eq!(breaker.failed(late[3], 51), None);
    assert_eq!(breaker.failing_since(), None, "an old failure is none of the new phase's");
}

#[test]
fn callers_who_leave_a_closed_breaker_change_nothing() {
    let breaker = breaker();
    for _ in 0..100 {
        breaker.gave_up(acquire(&breaker, 0), || panic!("there is no probe"));
    }
    assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Closed, None));
}

#[test]
fn it_returns_since_when_the_store_fails() {
    let breaker = breaker();
    assert_eq!(breaker.failing_since(), None);
    for now in [7_000, 7_001, 8_000] {
        breaker.failed(acquire(&breaker, now), now);
    }
    assert_eq!(breaker.failing_since(), Some(7_000), "it did so before it opened");
    for now in [9_000, 9_001] {
        breaker.failed(acquire(&breaker, now), now);
    }
    probe_fails(&breaker, 10_000);
    assert_eq!(breaker.failing_since(), Some(7_000));
    succeeds(&breaker, 67_000);
    assert_eq!((breaker.failing_since(), breaker.first_failure()), (None, 7_000));
}

#[test]
fn no_number_of_changes_or_years_confuses_it() {
    let breaker = breaker();
    let mut now = 0;
    for _ in 0..100_000 {
        for _ in 0..MOST_IN_ROW {
            breaker.failed(acquire(&breaker, now), now);
        }
        now += millis(breaker.next_probe(now));
        assert!(succeeds(&breaker, now));
    }
    let far = u64::MAX - FIRST_WAIT_MS;
    for _ in 0..MOST_IN_ROW {
        breaker.failed(acquire(&breaker, far), far);
    }
    acquire(&breaker, far + FIRST_WAIT_MS);
}
