//! A result that has expired is better than none, while the fresh one is late.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tollgate::policy::TierLookup;
use tollgate::{Quota, RateLimitLayer};

use super::rig::{Directory, HOUR, PRO, memory, ms, tiered, told};

/// Finds a quota at once the first time, and then what a test says, so late.
fn then(directory: &Directory, after: Duration, next: Result<Quota, &'static str>) -> TierLookup {
    let asked = directory.clone();
    directory.tiers_by(move |_| {
        let first = asked.asked() == 1;
        async move {
            if first {
                return Ok(Some(PRO));
            }
            sleep(after).await;
            next.map(Some)
        }
    })
}

async fn limit(layer: &RateLimitLayer, user: &str) -> String {
    told(layer, user, "x-ratelimit-limit").await
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_while_the_fresh_one_is_late() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(then(&directory, ms(40), Ok(Quota::fixed_window(300_000, HOUR)))));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(Duration::from_secs(60)).await;
    let start = Instant::now();
    assert_eq!(limit(&layer, "ada").await, "200000");
    assert!((ms(10)..=ms(12)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(limit(&layer, "ada").await, "200000");
    assert!(start.elapsed() <= ms(12), "one request waits for it: {:?}", start.elapsed());
    sleep(ms(40)).await;
    assert_eq!(limit(&layer, "ada").await, "300000");
    assert_eq!(directory.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_replaced_by_one_that_is_not_late() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(then(&directory, ms(8), Ok(Quota::fixed_window(300_000, HOUR)))));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(Duration::from_secs(60)).await;
    assert_eq!(limit(&layer, "ada").await, "300000");
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_for_as_long_again_while_lookups_fail() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(then(&directory, ms(0), Err("the directory is away"))));
    for (passes, expected, lookups) in
        [(0, "200000", 1), (60_000, "200000", 2), (900, "200000", 2), (200, "200000", 3), (59_000, "100000", 4)]
    {
        advance(ms(passes)).await;
        assert_eq!((limit(&layer, "ada").await.as_str(), directory.asked()), (expected, lookups), "after {passes} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_where_no_lookup_may_start() {
    let directory = Directory::default();
    let lookup = then(&directory, ms(20), Ok(Quota::fixed_window(300_000, HOUR))).in_flight(1);
    let layer = RateLimitLayer::new(memory(), tiered(lookup));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(Duration::from_secs(60)).await;
    let (bob, ada) = tokio::join!(limit(&layer, "bob"), limit(&layer, "ada"));
    assert_eq!((bob.as_str(), ada.as_str(), directory.asked()), ("300000", "200000", 2));
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_long_before_a_long_timeout() {
    let directory = Directory::default();
    let lookup = then(&directory, ms(900), Ok(Quota::fixed_window(300_000, HOUR))).timeout(ms(1_000));
    let layer = RateLimitLayer::new(memory(), tiered(lookup));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(Duration::from_secs(60)).await;
    assert_eq!(limit(&layer, "ada").await, "200000");
    sleep(ms(900)).await;
    assert_eq!((limit(&layer, "ada").await.as_str(), directory.asked()), ("300000", 2));
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_of_a_short_lifetime_is_used_for_as_long_again_and_no_longer() {
    let directory = Directory::default();
    let lookup = then(&directory, ms(0), Err("the directory is away")).ttl(ms(200));
    let layer = RateLimitLayer::new(memory(), tiered(lookup));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(ms(250)).await;
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(ms(900)).await;
    assert_eq!(limit(&layer, "ada").await, "100000", "1150 ms after a result with a lifetime of 200 ms");
}
