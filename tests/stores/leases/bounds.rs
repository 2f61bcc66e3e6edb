//! Every interval d admits at most what the definition does in d + τ.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::LeaseStore;
use tollgate::test_util::ManualClock;

use super::definition::assert_admits;
use super::sim::{Far, Traffic, bursts, micros, ms, secs, take};
use crate::support::slow::many;
use crate::support::time::memory;

const NOW: Duration = Duration::ZERO;

/// How many quotas of each kind are tried.
const QUOTAS: [usize; 2] = [1, usize::MAX];

/// A minute of bursts on eight processes, and what holds of it.
async fn simulate(quota: Quota, height: u64, share: f64, (before, after): (Duration, Duration)) {
    let clock = ManualClock::paused();
    let far = Far::new(memory(&clock), before, after);
    let stores = [(); 8].map(|()| LeaseStore::builder(far.clone()).max_share(share).clock(clock.clone()).build());
    let Traffic { admitted, locally, asked } = bursts(&stores, quota, &clock, height).await;
    let by_inner = admitted.len() as u64 - locally;
    println!("{quota}: {asked} asked, {locally} + {by_inner} admitted, {} calls", far.calls());
    assert!(locally > 500, "only {locally} were admitted by leases");
    assert!(by_inner > 50 && asked > admitted.len() as u64 + 200, "the limit was hardly reached");
    assert_admits(&quota, &admitted, (quota.window() / 10).min(secs(1)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_holds_over_eight_processes_that_lease() {
    for (quota, height, share) in [
        (Quota::token_bucket(2_000, secs(10)), 4, 0.1),
        (Quota::token_bucket(2_000, secs(10)), 1, 0.5),
        (Quota::token_bucket(6_000, secs(20)).burst(500), 3, 0.3),
        (Quota::per_second(300), 3, 0.2),
        (Quota::token_bucket(30_000, secs(60)), 8, 1.0),
    ]
    .into_iter()
    .take(many(QUOTAS))
    {
        simulate(quota, height, share, (NOW, NOW)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fixed_window_holds_over_eight_processes_that_lease() {
    for (quota, height, share) in [
        (Quota::fixed_window(2_000, secs(5)), 4, 0.1),
        (Quota::fixed_window(200, secs(1)), 2, 0.3),
        (Quota::fixed_window(12_000, secs(20)), 5, 1.0),
    ]
    .into_iter()
    .take(many(QUOTAS))
    {
        simulate(quota, height, share, (NOW, NOW)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sliding_window_holds_over_eight_processes_that_lease() {
    for (quota, height, share) in [
        (Quota::sliding_window(2_000, secs(5)), 4, 0.1),
        (Quota::sliding_window(200, secs(1)), 2, 0.3),
        (Quota::sliding_window(12_000, secs(20)), 5, 1.0),
    ]
    .into_iter()
    .take(many(QUOTAS))
    {
        simulate(quota, height, share, (NOW, NOW)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sliding_log_holds_over_eight_processes_that_lease() {
    let quotas = [(Quota::sliding_log(2_000, secs(5)), 4, 0.1), (Quota::sliding_log(9_000, secs(20)), 5, 1.0)];
    for (quota, height, share) in quotas.into_iter().take(many(QUOTAS)) {
        simulate(quota, height, share, (NOW, NOW)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_long_on_their_way_hold_as_well() {
    let (log, bucket) = (Quota::sliding_log(1_500, secs(5)), Quota::token_bucket(6_000, secs(20)).burst(900));
    let (there, back) = ((ms(35), NOW), (NOW, ms(60)));
    for (quota, share, way) in [
        (log, 0.2, there),
        (bucket, 0.3, there),
        (log, 0.2, back),
        (bucket, 0.3, back),
        (Quota::fixed_window(1_500, secs(5)), 0.1, there),
        (Quota::sliding_window(1_500, secs(5)), 0.1, there),
    ]
    .into_iter()
    .take(many(QUOTAS))
    {
        simulate(quota, 6, share, way).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_holds_over_eight_processes_that_lease_and_give_back_in_turn() {
    const QUOTA: Quota = Quota::token_bucket(1_000, secs(10));
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let stores = [(); 8].map(|()| LeaseStore::builder(inner.clone()).clock(clock.clone()).build());
    let mut admitted = Vec::new();
    let mut all_take = async |requests: usize| {
        for store in &stores {
            for _ in 0..requests {
                if take(store, "hot", QUOTA, 1).await.0 {
                    let at = micros(&clock);
                    admitted.push((at, 1));
                }
            }
            tokio::time::sleep(ms(61)).await;
        }
    };
    // Each process leases, spends little, and gives the rest back when its key is idle.
    for _ in 0..60 {
        all_take(9).await;
        tokio::time::sleep(ms(450)).await;
    }
    for _ in 0..3 {
        all_take(400).await;
    }
    assert_admits(&QUOTA, &admitted, secs(1), 0);
}
