//! Tests of stores with several servers, each with its own breaker.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::OnFailure;
use super::super::rule::FailureRules;
use super::super::without::Without;
use super::{decided_by_store, failure, ms};
use crate::core::Error;
use crate::core::decision::Source;
use crate::store::BreakerState;
use crate::store::breaker::Outage;

/// The error of one of several servers, which is probed again after `next_probe`.
fn partial_failure(next_probe: Duration, failing_since: Option<Instant>) -> Error {
    failure().for_one_server(Outage { next_probe, failing_since })
}

/// A layer that allows all requests for a second.
fn allowing() -> Without {
    Without::new(FailureRules { on_failure: OnFailure::Allow, allow_for: ms(1_000), ..FailureRules::default() })
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_of_several_servers_do_not_count_for_the_others() {
    let without = Without::new(FailureRules::default());
    for _ in 0..4 {
        without.decide(Err(failure()));
    }
    for wait in [Duration::ZERO, ms(50)] {
        for _ in 0..100 {
            assert_eq!(without.decide(Err(partial_failure(wait, None))), Source::Fallback);
        }
    }
    assert_eq!(without.state(), BreakerState::Closed, "they are not counted");
    without.decide(Err(failure()));
    assert_eq!(without.state(), BreakerState::Open, "nor are they replies");
    assert_eq!(without.next_probe(&failure()), ms(50));
    assert_eq!(without.next_probe(&partial_failure(ms(7_000), None)), ms(7_000), "when that server is called again");
    advance(ms(50)).await;
    without.decide(Err(partial_failure(ms(7_000), None)));
    assert_eq!((without.state(), without.next_probe(&failure())), (BreakerState::Open, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn all_is_admitted_for_the_time_of_each_servers_own_outage() {
    let (without, first) = (allowing(), Instant::now());
    let since = [Some(first), Some(first + ms(600)), None];
    for (later, outages_admitted) in [(999, [true; 3]), (1, [false, true, true]), (600, [false, false, true])] {
        advance(ms(later)).await;
        let admitted = since.map(|since| without.decide(Err(partial_failure(ms(50), since))) == Source::FailOpen);
        assert_eq!(admitted, outages_admitted, "after {:?}", first.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_servers_that_reply_are_admitted_for_no_longer_than_outages_and_make_none_longer() {
    let without = allowing();
    let fails = |since| without.decide(Err(partial_failure(ms(0), since)));
    for (failure, source) in (0..10).map(|_| Source::FailOpen).chain([Source::Fallback; 50]).enumerate() {
        assert_eq!(fails(None), source, "failure {failure}, each 100 ms");
        // In between, the same server decides other keys.
        without.decide(Ok(decided_by_store(None)));
        advance(ms(100)).await;
    }
    assert_eq!(fails(Some(Instant::now())), Source::FailOpen, "an outage of its own begins");
    for _ in 0..100 {
        advance(ms(1_001)).await;
        assert_eq!(fails(None), Source::FailOpen, "there was none for longer than that");
    }
}
