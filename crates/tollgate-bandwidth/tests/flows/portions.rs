//! How much is leased, and when it is returned.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{Key, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::Flow;

use super::audit::{ada, flow, flow_of, limiter, memory};

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
async fn a_check_that_waits_for_retry_after_is_admitted() {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    // What others have taken before, and two checks that are refused one after the other.
    let mut rows = vec![
        // 5 are missing beside a portion of 2500.
        (Quota::fixed_window(36 * MB, hour), 36 * MB - 2_505, [2_510; 2]),
        (Quota::sliding_window(36 * MB, hour), 36 * MB - 2_505, [2_510; 2]),
        // The store is called for one, and then 90 are needed.
        (Quota::sliding_window(100, minute), 100, [1, 90]),
    ];
    rows.extend([(Quota::fixed_window(100, minute), 100, [1; 2]); 50]);
    for (quota, taken, checks) in rows {
        let (limiter, _) = limiter(memory(), quota);
        let _ = limiter.check_n(&ada(), taken).await.expect("memory decides");
        let flow = flow_of(&limiter).await;
        let wait = flow.check(checks[0]).await.expect_err("no more").retry_after().expect("a wait helps");
        sleep(wait.min(minute).saturating_sub(Duration::from_secs(3))).await;
        if let Err(error) = flow.check(checks[1]).await {
            sleep(error.retry_after().expect("a wait helps")).await;
            flow.check(checks[1]).await.unwrap_or_else(|error| panic!("{quota}: {error}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_that_are_replaced_hold_from_the_next_portion_on() {
    let of = |limit| [Policy::new("bytes", Quota::per_second(limit))];
    let live = RateLimitLayer::composite(memory()).policies(of(100)).live();
    let flow = Flow::of(&live.limiter(), &Key::new("global", "")).await.expect("a flow");
    assert!(flow.check(500).await.expect_err("a bucket of 100").is_denied());
    live.replace_policies(of(1_000)).expect("it is valid");
    flow.check(500).await.expect("a bucket of 1,000");
    let paced = async |units: u64| {
        let start = Instant::now();
        for _ in 0..units / 10 {
            flow.acquire(10).await.expect("memory decides");
        }
        start.elapsed().as_millis()
    };
    let elapsed = paced(3_000).await;
    assert!((2_000..3_500).contains(&elapsed), "{elapsed} ms");
    live.remove_policies();
    assert!(paced(1_000_000).await < 1_000, "nothing limits");
}
