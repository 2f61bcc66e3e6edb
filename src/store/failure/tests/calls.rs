//! Tests of what counts as one failure: calls, however many requests they carry.

use tokio::time::advance;

use super::super::rule::FailureRules;
use super::super::without::Without;
use super::{decide, decided_by_store, failure, ms, without};
use crate::core::Error;
use crate::core::call::CallId;
use crate::store::{BreakerState, StoreDecision};

/// The requests of one call.
const CALLERS: usize = 64;

/// Reports the outcome of one call for all its callers, which had their permits before any of them had an outcome.
fn report_all(without: &Without, decided: impl Fn() -> Result<StoreDecision, Error>) {
    let permits: Vec<_> = (0..CALLERS).map(|_| without.breaker.acquire().expect("a permit")).collect();
    for permit in permits {
        without.report(permit, &decided());
    }
}

fn call_fails(without: &Without) {
    let error = failure();
    report_all(without, || Err(error.shared()));
}

fn call_succeeds(without: &Without) {
    let call = Some(CallId::new());
    report_all(without, || Ok(decided_by_store(call)));
}

#[tokio::test(start_paused = true)]
async fn callers_who_gave_up_on_one_call_count_once_and_each_of_those_with_their_own_calls_counts() {
    let without = without(FailureRules::default());
    let call = CallId::new();
    for _ in 0..CALLERS {
        drop(decide(&without, Err(failure().of_call(call))));
    }
    assert_eq!(without.breaker.inner.state(), BreakerState::Closed);
    for _ in 0..4 {
        drop(decide(&without, Err(failure())));
    }
    assert_eq!(without.breaker.inner.state(), BreakerState::Open);
}

/// Returns after how many calls, of which every `nth` fails, the breaker opens, if it does.
fn opens_after(nth: u64, fails: impl Fn(&Without), succeeds: impl Fn(&Without)) -> Option<u64> {
    let without = without(FailureRules::default());
    (1..=1_000).find(|call| {
        if call % nth == 0 {
            fails(&without);
        } else {
            succeeds(&without);
        }
        without.breaker.inner.state() == BreakerState::Open
    })
}

#[tokio::test(start_paused = true)]
async fn a_store_of_whose_calls_half_fail_is_not_called_however_many_requests_they_carry() {
    let one_fails = |without: &Without| drop(decide(without, Err(failure())));
    let one_succeeds = |without: &Without| drop(decide(without, Ok(decided_by_store(None))));
    for (nth, opens) in [(2, Some(20)), (3, None), (10, None)] {
        assert_eq!(opens_after(nth, one_fails, one_succeeds), opens, "every {nth}th of single requests");
        assert_eq!(opens_after(nth, call_fails, call_succeeds), opens, "every {nth}th of full calls");
        assert_eq!(opens_after(nth, call_fails, one_succeeds), opens, "every {nth}th, and it is full");
        assert_eq!(opens_after(nth, one_fails, call_succeeds), opens, "every {nth}th, and the others are full");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_counts_though_others_reported_its_call_before() {
    let without = without(FailureRules::default());
    let early = without.breaker.acquire().expect("it is closed");
    for _ in 0..5 {
        drop(decide(&without, Err(failure())));
    }
    advance(ms(50)).await;
    let (probe, call) = (without.breaker.acquire().expect("it is time"), CallId::new());
    without.report(early, &Ok(decided_by_store(Some(call))));
    assert_eq!(without.breaker.inner.state(), BreakerState::HalfOpen, "that was called before");
    without.report(probe, &Ok(decided_by_store(Some(call))));
    assert_eq!(without.breaker.inner.state(), BreakerState::Closed);
}
