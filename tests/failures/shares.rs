//! Each instance's share of the limits, while the store is away.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::advance;
use tollgate::policy::Count;
use tollgate::store::BreakerState;
use tollgate::{Policy, Quota, RateLimitLayer, Source};

use super::rig::{Answered, MOST, Mood, Moody, answer, ask, header, layer, ms, per_user, source, state, told};

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
    for (limit, instances, share) in [(10, 1, 10), (10, 4, 3), (10, 5, 2), (10, 1_000, 1), (1, u32::MAX, 1)] {
        for quota in [
            Quota::token_bucket(limit, HOUR),
            Quota::per_hour(1_000).burst(limit),
            Quota::fixed_window(limit, 1_000 * HOUR),
            Quota::sliding_window(limit, HOUR),
            Quota::sliding_log(limit, HOUR),
        ] {
            let layer = sharing(per_user(quota), instances);
            for user in ["ada", "bob"] {
                assert_eq!(admitted(&layer, user).await, share, "{quota} over {instances}");
            }
        }
    }
    assert_eq!(admitted(&sharing(per_user(Quota::leaky_bucket(1, HOUR)), 4), "ada").await, 1);
}

#[tokio::test]
async fn headers_show_the_quota_as_it_is_configured_and_what_is_left_of_the_share() {
    let layer = sharing(per_user(Quota::per_hour(10)), 4);
    for left in ["2", "1", "0", "0"] {
        let response = ask(&layer, "ada").await;
        assert_eq!(header(&response, "ratelimit-policy"), "\"user\";q=10;w=3600");
        assert!(header(&response, "ratelimit").starts_with(&format!("\"user\";r={left};t=")));
        assert_eq!(header(&response, "x-ratelimit-limit"), "10");
    }
    waits(&ask(&layer, "ada").await, 1_200);
}

#[tokio::test]
async fn a_cost_above_a_share_needs_all_of_it_and_its_debt_is_paid_in_full() {
    for (quota, cost, instances, wait) in [
        (Quota::per_hour(8), 4, 4, 4 * 1_800),
        (Quota::per_hour(8), 8, 8, 8 * 3_600),
        (Quota::sliding_log(8, HOUR), 8, 8, 3_600),
    ] {
        let layer = sharing(per_user(quota).cost(cost), instances);
        assert_eq!(ask(&layer, "ada").await.status(), 200);
        waits(&ask(&layer, "ada").await, wait);
    }
    let cost = Arc::new(AtomicU64::new(1));
    let costs = Arc::clone(&cost);
    let layer = sharing(per_user(Quota::per_hour(8)).cost_by(move |_| costs.load(Ordering::Relaxed)), 4);
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    cost.store(4, Ordering::Relaxed);
    waits(&ask(&layer, "ada").await, 1_800);
    cost.store(1, Ordering::Relaxed);
    assert_eq!(ask(&layer, "ada").await.status(), 200, "what was refused left no debt");
}

#[tokio::test]
async fn a_debt_is_given_back_with_what_was_taken() {
    for quota in [
        Quota::per_hour(8),
        Quota::fixed_window(8, 1_000 * HOUR),
        Quota::sliding_window(8, 1_000 * HOUR),
        Quota::sliding_log(8, Duration::from_secs(60)),
        Quota::leaky_bucket(8, HOUR).queue(7),
    ] {
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
    for (cost, instances, expected) in [(1, 1, 4), (1, 4, 1), (4, 4, 1), (5, 4, 0), (5, 1_000, 0)] {
        let kept = per_user(Quota::per_hour(8)).cost(cost).reserve(0.5, |_| false);
        assert_eq!(admitted(&sharing(kept, instances), "ada").await, expected, "{cost} over {instances}");
    }
}

#[tokio::test]
async fn a_request_refused_by_one_share_takes_nothing_from_the_others() {
    let eight = Quota::per_hour(8);
    let layer = sharing(per_user(eight).cost(4), 4).policy(Policy::new("all", eight));
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    assert_eq!(admitted(&layer, "ada").await, 0);
    assert_eq!(ask(&layer, "bob").await.status(), 200, "one of two is left, and no debt was made");
    assert_eq!(ask(&layer, "cyd").await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_whom_it_was_taken_from() {
    let store = Moody::new(Mood::Decides);
    let layer = RateLimitLayer::new(store.store(), per_user(Quota::per_hour(3)).count(Count::failures()));
    for (mood, source) in [(Mood::Decides, Source::Store), (Mood::Fails, Source::Fallback)] {
        store.becomes(mood);
        for _ in 0..10 {
            assert_eq!(told(&answer(&layer, "ada", 200).await), (200, source));
        }
        assert_eq!(store.settled(), 10, "the store knows nothing of those it has not decided");
    }
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
    let store = Moody::new(Mood::DecidesIn(ms(10)));
    let other = layer(&store, Quota::per_hour(3));
    let counting = RateLimitLayer::new(store.store(), per_user(Quota::per_hour(3)).count(Count::failures()));
    let failing = async {
        store.becomes(Mood::Fails);
        for _ in 0..MOST {
            ask(&counting, "bob").await;
        }
        // What is sent arrives again, before the layer notices.
        store.becomes(Mood::Decides);
    };
    let (response, ()) = futures::join!(answer(&counting, "ada", 200), failing);
    assert_eq!((source(&response), store.settled(), state(&counting)), (Source::Store, 1, BreakerState::Open));
    assert_eq!(header(&ask(&other, "ada").await, "x-ratelimit-remaining"), "2", "they are there again");
}
