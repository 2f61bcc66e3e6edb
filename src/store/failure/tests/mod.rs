//! Tests of what is decided without a store, with tokio's clock paused.

mod calls;
#[cfg(feature = "cluster")]
mod servers;

use std::time::Duration;

use super::rule::FailureRules;
use super::without::Without;
use crate::core::call::CallId;
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::error::Kind;
use crate::core::{Error, Key, Quota};
use crate::store::{Check, Counter, Receipt, StoreDecision, StoreId};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn without(rules: FailureRules) -> Without {
    Without::new(rules)
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
    let outcome = Outcome::allowed(&check(), 10);
    let receipt = Receipt::empty(StoreId::new());
    let receipt = receipt.of_call(call);
    StoreDecision::new(Decision::new([outcome], Source::Store), receipt)
}

/// What is decided in the end, after the store decided like this.
fn decide(without: &Without, mut decided: Result<StoreDecision, Error>) -> StoreDecision {
    let permit = without.breaker.acquire().expect("a permit");
    without.report(permit, &decided);
    without.stand_in(&[check()], &mut decided);
    decided.expect("it is decided")
}
