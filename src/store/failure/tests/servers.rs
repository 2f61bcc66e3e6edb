//! Tests of stores with several servers, of which each has a breaker of its own.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::OnFailure;
use super::super::rule::FailureRules;
use super::super::without::Without;
use super::{decide, decided_by_store, failure, ms, without};
use crate::core::Error;
use crate::core::decision::Source;
use crate::store::BreakerState;
use crate::store::breaker::Outage;

/// The error of one of several servers, which is probed again after `next_probe`.
fn partial_failure(next_probe: Duration, failing_since: Option<Instant>) -> Error {
    failure().of_one_server(Outage { next_probe, failing_since })
}

/// Who decides instead of a store that failed.
fn decided(without: &Without, error: Error) -> Source {
    decide(without, Err(error)).decision.source()
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_of_several_servers_do_not_count_for_the_others() {
    let without = without(FailureRules::default());
    for _ in 0..4 {
        decided(&without, failure());
    }
    for wait in [Duration::ZERO, ms(50)] {
        for _ in 0..100 {
            assert_eq!(decided(&without, partial_failure(wait, None)), Source::Fallback);
        }
    }
    assert_eq!(without.breaker.inner.state(), BreakerState::Closed, "they are not counted");
    decided(&without, failure());
    assert_eq!(without.breaker.inner.state(), BreakerState::Open, "nor are they replies");
    advance(ms(50)).await;
    decided(&without, partial_failure(ms(7_000), None));
    assert_eq!((without.breaker.inner.state(), without.next_probe(&failure())), (BreakerState::Open, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_until_the_server_that_failed_is_called_again() {
    let without = without(FailureRules::default());
    for _ in 0..5 {
        decided(&without, failure());
    }
    assert_eq!(without.next_probe(&failure()), ms(50));
    assert_eq!(without.next_probe(&partial_failure(ms(7_000), None)), ms(7_000));
}

#[tokio::test(start_paused = true)]
async fn all_is_admitted_for_the_time_of_each_servers_own_outage() {
    let without =
        without(FailureRules { on_failure: OnFailure::Allow, allow_for: ms(1_000), ..FailureRules::default() });
    let (first, second) = (Instant::now(), Instant::now() + ms(600));
    let at = |since| decided(&without, partial_failure(ms(50), since));
    advance(ms(999)).await;
    assert_eq!([at(Some(first)), at(Some(second)), at(None)], [Source::FailOpen; 3]);
    advance(ms(1)).await;
    assert_eq!([at(Some(first)), at(Some(second)), at(None)], [Source::Fallback, Source::FailOpen, Source::FailOpen]);
    advance(ms(600)).await;
    assert_eq!([at(Some(first)), at(Some(second)), at(None)], [Source::Fallback, Source::Fallback, Source::FailOpen]);
}

/// A layer that admits all for a second.
fn allowing() -> Without {
    without(FailureRules { on_failure: OnFailure::Allow, allow_for: ms(1_000), ..FailureRules::default() })
}

#[tokio::test(start_paused = true)]
async fn failures_of_servers_that_reply_are_admitted_for_no_longer_than_outages() {
    let without = allowing();
    for (failure, source) in (0..10).map(|_| Source::FailOpen).chain([Source::Fallback; 50]).enumerate() {
        assert_eq!(decided(&without, partial_failure(ms(0), None)), source, "failure {failure}, each 100 ms");
        // Other keys are served by the same server meanwhile.
        drop(decide(&without, Ok(decided_by_store(None))));
        advance(ms(100)).await;
    }
    advance(ms(1_000)).await;
    assert_eq!(
        decided(&without, partial_failure(ms(0), None)),
        Source::FailOpen,
        "there was none for longer than that"
    );
}

#[tokio::test(start_paused = true)]
async fn now_and_then_a_failure_of_a_server_that_replies_is_admitted() {
    let without = allowing();
    advance(ms(60_000)).await;
    for _ in 0..100 {
        assert_eq!(decided(&without, partial_failure(ms(0), None)), Source::FailOpen);
        advance(ms(1_001)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_servers_that_reply_make_no_servers_outage_longer() {
    let without = allowing();
    for _ in 0..20 {
        decided(&without, partial_failure(ms(0), None));
        advance(ms(100)).await;
    }
    assert_eq!(decided(&without, partial_failure(ms(50), Some(Instant::now()))), Source::FailOpen);
}
