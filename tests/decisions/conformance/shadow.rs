//! Checks that are decided and counted, and refuse nobody.

use std::time::Duration;

use tollgate::store::{Check, Deadline, Mode};
use tollgate::{Outcome, Quota};

use crate::algorithms::rows::{S, admits, denies, never, table};
use crate::algorithms::subject::on_each_store;
use crate::support::checks::check;

fn shadow(key: &str, quota: Quota, cost: u64) -> Check {
    check(key, quota, cost).mode(Mode::Shadow)
}

#[tokio::test]
async fn a_shadow_check_tells_what_it_would_refuse() {
    let quota = Quota::fixed_window(3, Duration::from_secs(60));
    table(
        quota,
        &[
            admits(0, 2, 1, 60 * S).shadow(),
            denies(10 * S, 2, 1, 50 * S, 50 * S).shadow(),
            never(10 * S, 4, 1, 50 * S).shadow(),
            admits(10 * S, 1, 0, 50 * S).shadow(),
            denies(10 * S, 1, 0, 50 * S, 50 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_shadow_check_that_does_not_fit_refuses_nothing_and_takes_nothing() {
    let (small, large) = (Quota::per_minute(2), Quota::fixed_window(9, Duration::from_secs(60)));
    on_each_store(async |subject| {
        let decided = subject.decide(&[shadow("a", small, 3), check("b", large, 1)], Deadline::none()).await;
        let told = format!("{}: {decided:?}", subject.name);
        assert!(decided.decision.is_allowed(), "{told}");
        assert_eq!(decided.decision.violated().count(), 0, "{told}");
        assert_eq!(decided.decision.binding().map(Outcome::quota), Some(&large), "{told}");
        assert_eq!(decided.receipt.taken().iter().map(|taken| taken.units).collect::<Vec<_>>(), [0, 1], "{told}");
        let left = subject.decide(&[check("a", small, 0), check("b", large, 0)], Deadline::none()).await.decision;
        assert_eq!(left.outcomes().iter().map(Outcome::remaining).collect::<Vec<_>>(), [2, 8], "{told}");
    })
    .await;
}

#[tokio::test]
async fn a_shadow_check_takes_nothing_when_another_refuses() {
    let quota = Quota::per_minute(5);
    on_each_store(async |subject| {
        let refused = subject.decide(&[shadow("a", quota, 1), check("b", quota, 6)], Deadline::none()).await.decision;
        assert!(!refused.is_allowed(), "{}: {refused:?}", subject.name);
        let left = subject.decide(&[check("a", quota, 0)], Deadline::none()).await.decision;
        assert_eq!(left.outcomes()[0].remaining(), 5, "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn a_request_of_shadows_only_is_admitted_and_nothing_binds() {
    let quota = Quota::per_minute(1);
    on_each_store(async |subject| {
        let decision = subject.decide(&[shadow("a", quota, 2)], Deadline::none()).await.decision;
        assert!(decision.is_allowed() && !decision.outcomes()[0].is_allowed(), "{}: {decision:?}", subject.name);
        assert!(decision.binding().is_none() && decision.retry_after().is_none(), "{}: {decision:?}", subject.name);
    })
    .await;
}
