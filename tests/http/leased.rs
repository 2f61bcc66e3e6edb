//! What this process could decide by itself follows the rules for failures all the same.

use std::time::Duration;

use futures::FutureExt;
use http::Request;
use tollgate::store::{BreakerState, LeaseStore};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{OnFailure, Policy, Quota, RateLimitLayer, key};
use tollgate_test::send;

use crate::support::time;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_this_process_could_decide_follows_the_rules_while_the_store_fails() {
    let clock = ManualClock::new();
    let failing = FailingStore::new(time::memory(&clock));
    let leases = LeaseStore::builder(failing.clone()).clock(clock.clone()).build();
    let policy = Policy::new("user", Quota::fixed_window(100_000, 60 * SECOND)).key(key::header("x-user"));
    let layer = RateLimitLayer::new(leases.clone(), policy).on_failure(OnFailure::Deny);
    let of = |user: &'static str| {
        let request = |_: usize| Request::builder().header("x-user", user).body(String::new()).expect("valid");
        send(&layer, 1, request).now_or_never().expect("the store decides at once").remove(0)
    };
    for _ in 0..200 {
        assert!(of("ada").is_admitted());
    }
    failing.fail();
    assert!(of("ada").is_admitted() && leases.counts().held() > 1, "a lease covers it");
    let failed = (0..100).take_while(|_| layer.clone().live().breaker_state() == BreakerState::Closed);
    assert!(failed.inspect(|_| assert_eq!(of("bob").status(), 503)).count() < 100, "it opens");
    assert_eq!(of("ada").status(), 503);
    assert!(leases.counts().held() > 0);
}
