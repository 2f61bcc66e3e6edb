//! Tests of what counts as one failure: calls, however many requests they carry.

use tokio::time::advance;

use super::super::rule::FailureRules;
use super::super::without::Without;
use super::{answered, away, ms, told, without};
use crate::core::Error;
use crate::core::call::CallId;
use crate::store::{BreakerState, Decided};

/// The requests of one call.
const CALLERS: usize = 64;

/// Reports the outcome of one call for all its callers, which had their permits before any of them had an outcome.
fn all_told(without: &Without, decided: impl Fn() -> Result<Decided, Error>) {
    let permits: Vec<_> = (0..CALLERS).map(|_| without.ask().expect("the store is asked")).collect();
    for permit in permits {
        without.learn(permit, &decided());
    }
}

fn call_fails(without: &Without) {
    let error = away();
    all_told(without, || Err(error.shared()));
}

fn call_is_answered(without: &Without) {
    let call = Some(CallId::new());
    all_told(without, || Ok(answered(call)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_counts_once_however_many_waited_for_it() {
    let without = without(FailureRules::default());
    for call in 1..=5 {
        assert_eq!(without.breaker_state(), BreakerState::Closed, "call {call}");
        call_fails(&without);
        advance(ms(1_000)).await;
    }
    assert_eq!(without.breaker_state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn callers_who_gave_up_on_one_call_count_once_and_each_of_those_with_their_own_calls_counts() {
    let without = without(FailureRules::default());
    let call = CallId::new();
    for _ in 0..CALLERS {
        drop(told(&without, Err(away().of_call(call))));
    }
    assert_eq!(without.breaker_state(), BreakerState::Closed);
    for _ in 0..4 {
        drop(told(&without, Err(away())));
    }
    assert_eq!(without.breaker_state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn callers_of_several_calls_that_fail_at_once_are_told_in_any_order() {
    let without = without(FailureRules::default());
    let errors = [away(), away(), away(), away()];
    for caller in 0..4 * CALLERS {
        drop(told(&without, Err(errors[caller * 7 % 4].shared())));
    }
    assert_eq!(without.breaker_state(), BreakerState::Closed, "these are four failures");
    call_fails(&without);
    assert_eq!(without.breaker_state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn each_layer_counts_a_failure_of_a_store_they_share() {
    let layers = [(); 2].map(|()| without(FailureRules::default()));
    for _ in 0..5 {
        let error = away();
        for without in &layers {
            drop(told(without, Err(error.shared())));
        }
    }
    assert_eq!(layers.map(|without| without.breaker_state()), [BreakerState::Open; 2]);
}

/// Returns after how many calls, of which every `nth` fails, the breaker opens, if it does.
fn opens_after(nth: u64, fails: impl Fn(&Without), answers: impl Fn(&Without)) -> Option<u64> {
    let without = without(FailureRules::default());
    (1..=1_000).find(|call| {
        if call % nth == 0 {
            fails(&without);
        } else {
            answers(&without);
        }
        without.breaker_state() == BreakerState::Open
    })
}

#[tokio::test(start_paused = true)]
async fn a_store_of_whose_calls_half_fail_is_not_asked_however_many_requests_they_carry() {
    let one_fails = |without: &Without| drop(told(without, Err(away())));
    let one_is_answered = |without: &Without| drop(told(without, Ok(answered(None))));
    for (nth, opens) in [(2, Some(20)), (3, None), (10, None)] {
        assert_eq!(opens_after(nth, one_fails, one_is_answered), opens, "every {nth}th of single requests");
        assert_eq!(opens_after(nth, call_fails, call_is_answered), opens, "every {nth}th of full calls");
        assert_eq!(opens_after(nth, call_fails, one_is_answered), opens, "every {nth}th, and it is full");
        assert_eq!(opens_after(nth, one_fails, call_is_answered), opens, "every {nth}th, and the others are full");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_counts_though_others_were_told_of_its_call_before() {
    let without = without(FailureRules::default());
    let early = without.ask().expect("it is closed");
    for _ in 0..5 {
        drop(told(&without, Err(away())));
    }
    advance(ms(50)).await;
    let (probe, call) = (without.ask().expect("it is time"), CallId::new());
    without.learn(early, &Ok(answered(Some(call))));
    assert_eq!(without.breaker_state(), BreakerState::HalfOpen, "that was asked before");
    without.learn(probe, &Ok(answered(Some(call))));
    assert_eq!(without.breaker_state(), BreakerState::Closed);
}
