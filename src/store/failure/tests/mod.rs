//! Tests, with tokio's clock paused, of how failures are counted and how requests are decided without a store.

#[cfg(feature = "cluster")]
mod servers;

use std::time::Duration;

use tokio::time::advance;

use super::rule::FailureRules;
use super::without::Without;
use crate::core::call::CallId;
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::error::Kind;
use crate::core::{Error, Key, Quota};
use crate::store::{BreakerState, Check, Counter, Receipt, StoreDecision, StoreId};

/// The requests of one call.
const CALLERS: usize = 64;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn failure() -> Error {
    Error::new(Kind::Timeout, "no reply")
}

fn check() -> Check {
    let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), Quota::per_hour(100));
    Check::new(counter, 1)
}

/// A decision of the store, by a call that others share or by its own.
fn decided_by_store(call: Option<CallId>) -> StoreDecision {
    let mut receipt = Receipt::empty(StoreId::new());
    receipt.set_call(call);
    StoreDecision::new(Decision::new([Outcome::allowed(&check(), 10)], Source::Store), receipt)
}

impl Without {
    fn state(&self) -> BreakerState {
        self.breaker.inner.state()
    }

    /// Returns the source of the decision, after the store returned this result.
    fn decide(&self, mut decided: Result<StoreDecision, Error>) -> Source {
        self.report(self.breaker.acquire().expect("a permit"), &decided);
        self.stand_in(&[check()], &mut decided);
        decided.expect("it is decided").decision.source()
    }

    /// Ends a call of one request, or of many, which had their permits before any of them had an outcome.
    fn end_call(&self, callers: usize, fails: bool) {
        let permits: Vec<_> = (0..callers).map(|_| self.breaker.acquire().expect("a permit")).collect();
        let (error, call) = (failure(), Some(CallId::new()));
        for permit in permits {
            self.report(permit, &if fails { Err(error.shared()) } else { Ok(decided_by_store(call)) });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callers_who_gave_up_on_one_call_count_once_and_each_of_those_with_their_own_calls_counts() {
    let (without, call) = (Without::new(FailureRules::default()), CallId::new());
    for _ in 0..CALLERS {
        without.decide(Err(failure().with_call(call)));
    }
    assert_eq!(without.state(), BreakerState::Closed);
    for _ in 0..4 {
        without.decide(Err(failure()));
    }
    assert_eq!(without.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_store_of_whose_calls_half_fail_is_not_called_however_many_requests_they_carry() {
    for (nth, opens) in [(2, Some(20)), (3, None), (10, None)] {
        for [failing, others] in [[1, 1], [CALLERS, CALLERS], [CALLERS, 1], [1, CALLERS]] {
            let without = Without::new(FailureRules::default());
            let opened = (1..=1_000).find(|call| {
                let fails = call % nth == 0;
                without.end_call(if fails { failing } else { others }, fails);
                without.state() == BreakerState::Open
            });
            assert_eq!(opened, opens, "every {nth}th call, of {failing} requests, fails, and others are of {others}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_counts_though_others_reported_its_call_before() {
    let without = Without::new(FailureRules::default());
    let early = without.breaker.acquire().expect("it is closed");
    for _ in 0..5 {
        without.decide(Err(failure()));
    }
    advance(ms(50)).await;
    let (probe, call) = (without.breaker.acquire().expect("it is time"), CallId::new());
    without.report(early, &Ok(decided_by_store(Some(call))));
    assert_eq!(without.state(), BreakerState::HalfOpen, "that was called before");
    without.report(probe, &Ok(decided_by_store(Some(call))));
    assert_eq!(without.state(), BreakerState::Closed);
}
