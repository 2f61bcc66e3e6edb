//! How much is leased, and when it is returned.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tollgate::{Key, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::Flow;

use super::audit::{ada, flow, flow_of, limiter, memory};
use crate::support::slow;

const MB: u64 = 1_000_000;

#[tokio::test(start_paused = true)]
async fn ten_megabytes_need_no_call_per_chunk() {
    for (quota, chunks, seconds) in [
        (Quota::per_second(MB), 10 * MB / 65_536, 8.9..9.5),
        // Portions of a burst grow.
        (Quota::fixed_window(1_000 * MB, Duration::from_secs(3_600)), 500 * MB / 65_536, 0.0..1.0),
    ] {
        let (flow, _, counts) = flow(quota).await;
        let start = Instant::now();
        for _ in 0..chunks {
            flow.acquire(65_536).await.expect("memory decides");
        }
        assert!(seconds.contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
        assert!(counts.calls() <= 60, "{} calls for {chunks} chunks of {quota}", counts.calls());
        drop(flow);
        assert_eq!(counts.taken(), chunks * 65_536);
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_for_a_second_is_returned() {
    let (flow, limiter, counts) = flow(Quota::fixed_window(1_000, Duration::from_secs(3_600))).await;
    flow.try_acquire(0).expect("nothing");
    assert!((1..=250).contains(&counts.taken()), "{} are held", counts.taken());
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(counts.taken(), 0);
    assert_eq!(limiter.peek(&ada()).await.expect("memory decides").outcomes()[0].remaining(), 1_000);
    flow.check(1).await.expect("more is leased");
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_slow_passes_no_unit_long_after_it_was_charged() {
    let (flow, _, counts) = flow(Quota::fixed_window(10_000, Duration::from_secs(60))).await;
    for _ in 0..50 {
        flow.acquire(1).await.expect("memory decides");
        sleep(Duration::from_millis(300)).await;
        // One portion that is in use, of which all but 4 come back, one second after it was charged.
        assert!(counts.taken() <= 50 + 312, "{}", counts.taken());
    }
    assert!(counts.refunded() > 0);
    drop(flow);
    assert_eq!(counts.taken(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_last_units_of_a_window_pass() {
    let (flow, _, counts) = flow(Quota::fixed_window(1_003, Duration::from_secs(3_600))).await;
    for _ in 0..1_003 {
        flow.check(1).await.expect("the window has 1003");
    }
    assert!(flow.check(1).await.expect_err("no more").retry_after().is_some_and(|wait| wait.as_secs() > 5));
    assert!(flow.try_acquire(1).is_err());
    assert_eq!(counts.taken(), 1_003);
    let (start, calls) = (Instant::now(), counts.calls());
    flow.acquire(1).await.expect("the next window comes");
    let waited = start.elapsed().as_secs();
    assert!(
        waited <= 3_600 && counts.calls() - calls <= waited / 5 + 4,
        "{waited} s, {} calls",
        counts.calls() - calls
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_waits_for_retry_after_is_admitted() {
    let (minute, seconds) = (Duration::from_secs(60), Duration::from_secs);
    for number in 0..200 {
        let (limiter, _) = limiter(memory(), Quota::fixed_window(100, minute));
        let flow = Flow::of(&limiter, &Key::new("user", number.to_string())).await.expect("a flow");
        flow.check(100).await.expect("the window has 100");
        let wait = flow.check(1).await.expect_err("no more").retry_after().expect("the next window");
        sleep(wait.saturating_sub(seconds(3))).await;
        let wait = flow.check(1).await.expect_err("no more").retry_after().expect("the next window");
        assert!(wait <= seconds(4), "{wait:?}");
        sleep(wait).await;
        flow.check(1).await.expect("it was waited for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_for_more_than_a_window_has_left_waits_for_the_next_one() {
    let hour = Duration::from_secs(3_600);
    for quota in [Quota::fixed_window(36 * MB, hour), Quota::sliding_window(36 * MB, hour)] {
        let (limiter, _) = limiter(memory(), quota);
        let _ = limiter.check_n(&ada(), 36 * MB - 2_505).await.expect("memory decides");
        let flow = Flow::of(&limiter, &ada()).await.expect("a flow, with a portion of 2500");
        let wait = flow.check(2_510).await.expect_err("5 are missing").retry_after().expect("the next window");
        sleep(wait).await;
        flow.check(2_510).await.expect("it was waited for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_for_more_than_the_store_was_called_for_waits_until_that_is_gained() {
    let (flow, ..) = flow(Quota::sliding_window(100, Duration::from_secs(60))).await;
    flow.check(100).await.expect("the window has 100");
    flow.check(1).await.expect_err("no more");
    let wait = flow.check(90).await.expect_err("no more").retry_after().expect("a wait helps");
    sleep(wait).await;
    flow.check(90).await.expect("it was waited for");
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_noticed_by_who_waits() {
    let (flow, limiter, _) = flow(Quota::fixed_window(10, Duration::from_secs(3_600))).await;
    flow.acquire(10).await.expect("the window has 10");
    let waiting = tokio::spawn({
        let flow = flow.clone();
        async move { flow.acquire(1).await }
    });
    sleep(Duration::from_secs(1)).await;
    limiter.reset(&ada()).await.expect("memory resets");
    let start = Instant::now();
    waiting.await.expect("no panic").expect("memory decides");
    assert!(start.elapsed() <= Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn quotas_that_are_replaced_hold_from_the_next_portion_on() {
    let layer = RateLimitLayer::new(memory(), Policy::new("bytes", Quota::per_second(100)));
    let flow = Flow::of(&layer.clone().live().limiter(), &Key::new("global", "")).await.expect("a flow");
    let paced = async |units: u64| {
        let start = Instant::now();
        for _ in 0..units / 10 {
            flow.acquire(10).await.expect("memory decides");
        }
        start.elapsed()
    };
    let slow = paced(1_100).await;
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&slow), "{slow:?}");
    layer.clone().live().replace_policies([Policy::new("bytes", Quota::per_second(1_000))]).expect("it is valid");
    let fast = paced(2_000).await;
    assert!(fast < Duration::from_millis(2_500), "{fast:?}");
    layer.clone().live().remove_policies();
    assert!(paced(1_000_000).await < Duration::from_secs(1), "nothing limits");

    let layer = RateLimitLayer::new(memory(), Policy::new("bytes", Quota::per_second(10)));
    let flow = Flow::of(&layer.clone().live().limiter(), &Key::new("global", "")).await.expect("a flow");
    assert!(flow.check(50).await.expect_err("a bucket of 10").is_denied());
    layer.clone().live().replace_policies([Policy::new("bytes", Quota::per_second(1_000))]).expect("it is valid");
    flow.check(50).await.expect("a bucket of 1,000");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_flows_of_one_key_share_their_portions() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(100 * MB));
    let flows = join_all((0..10_000).map(|_| flow_of(&limiter))).await;
    assert!(counts.taken() <= 25 * MB, "{} are held", counts.taken());
    let (start, chunks) = (Instant::now(), slow::many([2, 5]));
    let mut all = tokio::task::JoinSet::new();
    for flow in flows {
        all.spawn(async move {
            for _ in 0..chunks {
                flow.acquire(16_384).await.expect("memory decides");
            }
        });
    }
    all.join_all().await;
    let (passed, elapsed) = (10_000 * chunks * 16_384, start.elapsed());
    let most = 100 * MB + u64::try_from(elapsed.as_micros()).expect("short") * 100;
    assert!(passed <= most, "{passed} in {elapsed:?}");
    assert_eq!(counts.taken(), passed);
    assert!(counts.calls() <= 20 * chunks, "{} calls for {} chunks", counts.calls(), 10_000 * chunks);
}
