use super::*;

const LIFE: u64 = 150;

fn breaker() -> Breaker {
    Breaker::new(Duration::from_millis(LIFE))
}

#[track_caller]
fn ask(breaker: &Breaker, now: u64) -> Permit {
    breaker.ask(|| now).expect("the store is asked")
}

#[track_caller]
fn is_not_asked(breaker: &Breaker, now: u64) {
    assert!(breaker.ask(|| now).is_none(), "the store is asked at {now}");
}

/// A breaker that opened at `now`.
fn opened(now: u64) -> Breaker {
    let breaker = breaker();
    for _ in 0..MOST_FAILURES {
        breaker.failed(ask(&breaker, now), now);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker
}

/// A probe at `now` fails at once.
#[track_caller]
fn probe_fails(breaker: &Breaker, now: u64) {
    let probe = ask(breaker, now);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert_eq!(breaker.failed(probe, now), Some(BreakerState::HalfOpen));
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn it_opens_on_failures_in_a_row_only() {
    let breaker = breaker();
    for round in 0..10 {
        for failure in 1..MOST_FAILURES {
            assert_eq!(breaker.failed(ask(&breaker, round), round), None, "failure {failure}");
        }
        assert!(!breaker.answered(ask(&breaker, round)), "it was never open");
    }
    for _ in 1..MOST_FAILURES {
        assert_eq!(breaker.failed(ask(&breaker, 10), 10), None);
    }
    assert_eq!(breaker.failed(ask(&breaker, 10), 10), Some(BreakerState::Closed), "it says so once");
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn while_it_is_closed_nobody_looks_at_the_clock() {
    let breaker = breaker();
    assert!(breaker.ask(|| panic!("there is no need to")).is_some());
}

#[test]
fn probes_come_after_50_ms_and_never_more_than_500_ms_apart() {
    let breaker = opened(1_000);
    let mut now = 1_000;
    for wait in [50, 100, 200, 400, 500, 500].into_iter().chain([500; 100]) {
        assert_eq!(breaker.next_probe(now), Duration::from_millis(wait));
        is_not_asked(&breaker, now + wait - 1);
        now += wait;
        assert_eq!(breaker.next_probe(now), Duration::ZERO);
        probe_fails(&breaker, now);
    }
}

#[test]
fn one_request_probes_and_the_others_do_not_wait_for_it() {
    let breaker = opened(0);
    let probe = ask(&breaker, 50);
    for now in [50, 60, 50 + LIFE - 1] {
        is_not_asked(&breaker, now);
    }
    assert!(breaker.answered(probe), "it closes");
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert_eq!(breaker.next_probe(60), Duration::ZERO);
    ask(&breaker, 60);
}

#[test]
fn of_those_who_come_at_once_one_probes() {
    let breaker = opened(0);
    let mut other = None;
    let asked = breaker.ask(|| {
        other = breaker.ask(|| 50);
        50
    });
    assert!(asked.is_none(), "the other one came first");
    assert!(breaker.answered(other.expect("it is time")));
}

#[test]
fn a_breaker_that_closed_opens_after_as_many_failures_as_at_first_and_probes_as_soon() {
    let breaker = opened(0);
    probe_fails(&breaker, 50);
    breaker.answered(ask(&breaker, 150));
    for _ in 1..MOST_FAILURES {
        assert_eq!(breaker.failed(ask(&breaker, 200), 200), None);
    }
    breaker.failed(ask(&breaker, 200), 200);
    assert_eq!(breaker.next_probe(200), Duration::from_millis(50));
}

#[test]
fn a_probe_whose_caller_left_is_made_by_another_a_moment_later() {
    let breaker = opened(0);
    breaker.gave_up(ask(&breaker, 50), || 60 + FIRST_WAIT_MS);
    assert_eq!(breaker.state(), BreakerState::Open);
    is_not_asked(&breaker, 109);
    assert!(breaker.answered(ask(&breaker, 110)));
}

#[test]
fn a_probe_nobody_tells_of_is_given_up() {
    let breaker = opened(0);
    let lost = ask(&breaker, 50);
    assert_eq!(breaker.next_probe(50), Duration::from_millis(LIFE));
    is_not_asked(&breaker, 50 + LIFE - 1);
    let probe = ask(&breaker, 50 + LIFE);
    assert!(!breaker.answered(lost), "it was given up");
    assert_eq!(breaker.failed(lost, 300), None);
    breaker.gave_up(lost, || 0);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert!(breaker.answered(probe));
}

#[test]
fn late_answers_to_what_was_asked_before_it_opened_change_nothing() {
    let breaker = breaker();
    let late = [(); 4].map(|()| ask(&breaker, 0));
    for _ in 0..MOST_FAILURES {
        breaker.failed(ask(&breaker, 0), 0);
    }
    assert!(!breaker.answered(late[0]));
    assert_eq!(breaker.failed(late[1], 1), None);
    assert_eq!((breaker.state(), breaker.next_probe(0)), (BreakerState::Open, Duration::from_millis(50)));

    let probe = ask(&breaker, 50);
    assert!(!breaker.answered(late[2]));
    assert_eq!(breaker.state(), BreakerState::HalfOpen, "only the probe closes it");
    breaker.answered(probe);
    assert_eq!(breaker.failed(late[3], 51), None);
    assert_eq!(breaker.failing_since(), None, "an old failure is none of the new phase's");
}

#[test]
fn callers_who_leave_a_closed_breaker_say_nothing_of_the_store() {
    let breaker = breaker();
    for _ in 0..100 {
        breaker.gave_up(ask(&breaker, 0), || panic!("there is no probe"));
    }
    assert_eq!((breaker.state(), breaker.failing_since()), (BreakerState::Closed, None));
}

#[test]
fn it_knows_since_when_the_store_fails() {
    let breaker = breaker();
    assert_eq!(breaker.failing_since(), None);
    for now in [7_000, 7_001, 8_000] {
        breaker.failed(ask(&breaker, now), now);
    }
    assert_eq!(breaker.failing_since(), Some(7_000), "it did so before it opened");
    for now in [9_000, 9_001] {
        breaker.failed(ask(&breaker, now), now);
    }
    probe_fails(&breaker, 10_000);
    assert_eq!(breaker.failing_since(), Some(7_000));
    breaker.answered(ask(&breaker, 67_000));
    assert_eq!((breaker.failing_since(), breaker.first_failure()), (None, 7_000));
}

#[test]
fn no_number_of_changes_or_years_confuses_it() {
    let breaker = breaker();
    let mut now = 0;
    for _ in 0..100_000 {
        for _ in 0..MOST_FAILURES {
            breaker.failed(ask(&breaker, now), now);
        }
        now += FIRST_WAIT_MS;
        assert!(breaker.answered(ask(&breaker, now)));
    }
    let far = u64::MAX - 1;
    for _ in 0..MOST_FAILURES {
        breaker.failed(ask(&breaker, far), far);
    }
    ask(&breaker, far);
    let patient = Breaker::new(Duration::MAX);
    for _ in 0..MOST_FAILURES {
        patient.failed(ask(&patient, 0), 0);
    }
    assert!(patient.answered(ask(&patient, 50)));
}
