//! What refused requests leave in Redis: what was there before.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::Check;

use super::stores::{all_remaining, decide, on_clock};
use crate::support::checks::check;

const HOUR: Duration = Duration::from_secs(3_600);

const QUOTAS: [Quota; 5] = [
    Quota::fixed_window(5, HOUR),
    Quota::sliding_log(5, HOUR),
    Quota::sliding_window(5, HOUR),
    Quota::token_bucket(5, HOUR).burst(7),
    Quota::leaky_bucket(5, HOUR),
];

#[tokio::test]
async fn all_algorithms_of_a_request_take_their_units_or_none_does() {
    let (server, _, store) = on_clock().await;
    let all = |cost: u64| -> Vec<Check> { QUOTAS.iter().map(|&quota| check("all", quota, cost)).collect() };
    assert!(decide(&store, &all(1)).await.decision.is_allowed());
    let kept = || -> Vec<(Vec<u8>, i64)> {
        server.keys().iter().map(|key| (server.ask(&["GET", key]), server.ask(&["PEXPIRETIME", key]))).collect()
    };
    let before = kept();
    assert_eq!(before.len(), 5);
    for refusing in &QUOTAS {
        for place in 0..=4 {
            // The refusing check stands first, last, and in between.
            let mut checks: Vec<Check> = all(1).into_iter().take(4).collect();
            checks.retain(|check| check.counter.quota() != refusing);
            checks.insert(place.min(checks.len()), check("all", *refusing, 1).floor(u64::MAX));
            let decision = decide(&store, &checks).await.decision;
            assert!(!decision.is_allowed() && decision.denied_by().count() == 1, "{checks:?}: {decision:?}");
        }
    }
    assert_eq!(kept(), before, "no value and no expiry has changed");
    assert_eq!(all_remaining(&decide(&store, &all(0)).await.decision), [4, 4, 4, 6, 0]);
}
