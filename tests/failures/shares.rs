//! Each instance's share of the limits, while the store is away.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::advance;
use tollgate::policy::Count;
use tollgate::store::BreakerState;
use tollgate::{Policy, Quota, RateLimitLayer, Source};

use super::rig::{Answered, Mood, Moody, answer, ask, header, layer, ms, per_user, source};

const HOUR: Duration = Duration::from_secs(3_600);

fn sharing(policy: Policy, instances: u32) -> RateLimitLayer {
    let instances = NonZeroU32::new(instances).expect("at least one");
    RateLimitLayer::new(Moody::new(Mood::Fails).store(), policy).instances(instances)
}

/// How many requests are admitted of 50.
async fn admitted(layer: &RateLimitLayer, user: &'static str) -> usize {
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += usize::from(ask(layer, user).await.status() == 200);
    }
    admitted
}

#[track_caller]
fn waits(response: &Answered, about: u64) {
    assert_eq!(response.status(), 429);
    let wait: u64 = header(response, "retry-after").parse().expect("a number");
    assert!((about - 30..=about).contains(&wait), "{wait} of {about}");
}

#[tokio::test]
async fn a_share_is_rounded_up_and_at_least_one_in_every_algorithm() {
    let quotas = |limit| {
        [
            Quota::token_bucket(limit, HOUR),
            Quota::fixed_window(limit, 1_000 * HOUR),
            Quota::sliding_window(limit, HOUR),
            Quota::sliding_log(limit, HOUR),
        ]
    };
    for (limit, instances, share) in [(10, 1, 10), (10, 4, 3), (10, 5, 2), (10, 1_000, 1), (1, u32::MAX, 1)] {
        for quota in quotas(limit) {
            let layer = sharing(per_user(quota), instances);
            assert_eq!(admitted(&layer, "ada").await, share, "{quota} over {instances}");
            assert_eq!(admitted(&layer, "bob").await, share, "each key has its own");
        }
    }
    let burst = Quota::per_hour(1_000).burst(10);
    assert_eq!(admitted(&sharing(per_user(burst), 4), "ada").await, 3, "the burst is shared");
    let queue = Quota::leaky_bucket(1, HOUR);
    assert_eq!(admitted(&sharing(per_user(queue), 4), "ada").await, 1);
}

#[tokio::test]
async fn headers_show_the_quota_as_it_is_configured_and_what_is_left_of_the_share() {
    let layer = sharing(per_user(Quota::per_hour(10)), 4);
    for left in ["2", "1", "0"] {
        let response = ask(&layer, "ada").await;
        assert_eq!(header(&response, "ratelimit-policy"), "\"user\";q=10;w=3600");
        assert!(header(&response, "ratelimit").starts_with(&format!("\"user\";r={left};t=")));
        assert_eq!(header(&response, "x-ratelimit-limit"), "10");
    }
    let response = ask(&layer, "ada").await;
    assert_eq!(header(&response, "ratelimit-policy"), "\"user\";q=10;w=3600");
    waits(&response, 1_200);
}

#[tokio::test]
async fn a_cost_above_a_share_needs_all_of_it() {
    let cost = Arc::new(AtomicU64::new(4));
    let costs = Arc::clone(&cost);
    let policy = per_user(Quota::per_hour(8)).cost_by(move |_| costs.load(Ordering::Relaxed));
    let layer = sharing(policy, 4);
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    waits(&ask(&layer, "ada").await, 4 * 1_800);
    cost.store(1, Ordering::Relaxed);
    assert_eq!(ask(&layer, "bob").await.status(), 200);
    cost.store(4, Ordering::Relaxed);
    waits(&ask(&layer, "bob").await, 1_800);
    cost.store(1, Ordering::Relaxed);
    assert_eq!(ask(&layer, "bob").await.status(), 200, "it left no debt");
}

#[tokio::test]
async fn the_debt_of_a_cost_far_above_a_share_is_paid_in_full() {
    let layer = sharing(per_user(Quota::per_hour(8)).cost(8), 8);
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    waits(&ask(&layer, "ada").await, 8 * 3_600);
    let log = sharing(per_user(Quota::sliding_log(8, HOUR)).cost(8), 8);
    assert_eq!(ask(&log, "ada").await.status(), 200);
    waits(&ask(&log, "ada").await, 3_600);
}

#[tokio::test]
async fn a_debt_is_given_back_with_what_was_taken() {
    let quotas = [
        Quota::per_hour(8),
        Quota::fixed_window(8, 1_000 * HOUR),
        Quota::sliding_window(8, 1_000 * HOUR),
        Quota::sliding_log(8, Duration::from_secs(60)),
        Quota::leaky_bucket(8, HOUR).queue(7),
    ];
    for quota in quotas {
        let failures = sharing(per_user(quota).cost(4).count(Count::failures()), 4);
        for _ in 0..10 {
            assert_eq!(answer(&failures, "ada", 200).await.status(), 200, "{quota}: it does not count");
        }
        assert_eq!(answer(&failures, "ada", 401).await.status(), 401);
        assert_eq!(answer(&failures, "ada", 401).await.status(), 429, "{quota}");
    }
}

#[tokio::test]
async fn a_reserve_is_shared_too_and_never_makes_a_cost_impossible() {
    let kept = |cost| per_user(Quota::per_hour(8)).cost(cost).reserve(0.5, |_| false);
    assert_eq!(admitted(&sharing(kept(1), 1), "ada").await, 4);
    assert_eq!(admitted(&sharing(kept(1), 4), "ada").await, 1, "one of two is kept");
    assert_eq!(admitted(&sharing(kept(4), 4), "ada").await, 1, "the quota admits it");
    assert_eq!(admitted(&sharing(kept(5), 4), "ada").await, 0, "and never this");
    assert_eq!(admitted(&sharing(kept(5), 1_000), "ada").await, 0);
}

#[tokio::test]
async fn a_cost_the_quota_never_admits_is_refused_for_good() {
    for instances in [1, 2, 100] {
        let response = ask(&sharing(per_user(Quota::per_hour(2)).cost_by(|_| 3), instances), "ada").await;
        assert_eq!((response.status().as_u16(), response.headers().get("retry-after")), (429, None));
    }
}

#[tokio::test]
async fn a_request_refused_by_one_share_takes_nothing_from_the_others() {
    let both = || sharing(per_user(Quota::per_hour(8)).cost(4), 4).policy(Policy::new("all", Quota::per_hour(8)));
    let layer = both();
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    for _ in 0..10 {
        assert_eq!(ask(&layer, "ada").await.status(), 429);
    }
    assert_eq!(ask(&layer, "bob").await.status(), 200, "one of two is left, and no debt was made");
    assert_eq!(ask(&layer, "cyd").await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_whom_it_was_taken_from() {
    let store = Moody::new(Mood::Decides);
    let failures = per_user(Quota::per_hour(3)).count(Count::failures());
    let layer = RateLimitLayer::new(store.store(), failures);
    for _ in 0..10 {
        assert_eq!(answer(&layer, "ada", 200).await.status(), 200);
    }
    assert_eq!(store.settled(), 10);
    store.becomes(Mood::Fails);
    for _ in 0..10 {
        let response = answer(&layer, "ada", 200).await;
        assert_eq!((response.status().as_u16(), source(&response)), (200, Source::Fallback));
    }
    assert_eq!(store.settled(), 10, "the store knows nothing of them");
    for status in [401, 401, 401, 429] {
        assert_eq!(answer(&layer, "ada", 401).await.status(), status);
    }
    store.becomes(Mood::Decides);
    advance(ms(50)).await;
    let response = answer(&layer, "ada", 401).await;
    assert_eq!((source(&response), header(&response, "x-ratelimit-remaining").as_str()), (Source::Store, "2"));
}

#[tokio::test(start_paused = true)]
async fn units_taken_before_an_outage_go_back_to_the_store_in_it() {
    let store = Moody::new(Mood::Decides);
    let layer = layer(&store, Quota::per_hour(3));
    let counting = RateLimitLayer::new(store.store(), per_user(Quota::per_hour(3)).count(Count::failures()));
    store.becomes(Mood::DecidesIn(ms(10)));
    let failing = async {
        store.becomes(Mood::Fails);
        for _ in 0..5 {
            ask(&counting, "bob").await;
        }
        // What is sent arrives again, before the layer notices.
        store.becomes(Mood::Decides);
        assert_eq!(counting.clone().live().breaker_state(), BreakerState::Open);
    };
    let (response, ()) = futures::join!(answer(&counting, "ada", 200), failing);
    assert_eq!((source(&response), store.settled()), (Source::Store, 1));
    assert_eq!(counting.clone().live().breaker_state(), BreakerState::Open);
    assert_eq!(header(&ask(&layer, "ada").await, "x-ratelimit-remaining"), "2", "they are there again");
}
