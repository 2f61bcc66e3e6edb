//! Every interval d admits at most what the definition does in d + τ, and what may be overdrawn.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::{LeaseCounts, LeaseStore};
use tollgate::test_util::ManualClock;

use super::definition::assert_admits;
use super::sim::{Far, Traffic, bursts, micros, ms, secs, take};
use crate::support::slow::many;
use crate::support::time::memory;

const NOW: Duration = Duration::ZERO;

/// Processes that share a store, and how their clients and their links behave.
pub(super) struct Course {
    pub(super) processes: u64,
    pub(super) quota: Quota,
    pub(super) overdraft: u64,
    /// The most requests of a step.
    pub(super) height: u64,
    pub(super) share: f64,
    /// How long questions and answers travel.
    pub(super) way: (Duration, Duration),
}

/// A minute of bursts, and what holds of it.
pub(super) async fn simulate(course: Course) {
    let Course { processes, quota, overdraft, height, share, way } = course;
    let clock = ManualClock::paused();
    let far = Far::new(memory(&clock), way.0, way.1);
    let store = |_| {
        let settings = LeaseStore::builder(far.clone()).max_share(share).overdraft(overdraft);
        settings.clock(clock.clone()).build()
    };
    let stores: Vec<_> = (0..processes).map(store).collect();
    let Traffic { admitted, locally, asked } = bursts(&stores, quota, &clock, height).await;
    let all = admitted.len() as u64;
    println!("{processes}: {quota}: {asked} asked, {locally} of {all} admitted here, {} calls", far.calls());
    assert!(locally > 300, "only {locally} of {all} were admitted here");
    assert!(asked > all + 200, "the limit was hardly reached");
    assert_admits(&quota, &admitted, (quota.window() / 10).min(secs(1)), processes * overdraft);
    for store in stores {
        store.close().await;
        let counts = store.counts();
        assert_balanced(&counts);
        assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
    }
}

#[track_caller]
pub(super) fn assert_balanced(counts: &LeaseCounts) {
    let had = counts.leased + counts.owed;
    assert_eq!(had, counts.spent + counts.returned + counts.lost + counts.held(), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_over_eight_processes_that_lease() {
    let (there, back) = ((ms(35), NOW), (NOW, ms(60)));
    let rows = [
        (Quota::token_bucket(2_000, secs(10)), 4, 0.1, (NOW, NOW)),
        (Quota::fixed_window(200, secs(1)), 2, 0.3, (NOW, NOW)),
        (Quota::sliding_window(2_000, secs(5)), 4, 0.1, (NOW, NOW)),
        (Quota::sliding_log(1_500, secs(5)), 6, 0.2, there),
        (Quota::token_bucket(6_000, secs(20)).burst(900), 6, 0.3, back),
        (Quota::fixed_window(2_000, secs(5)), 4, 0.1, (NOW, NOW)),
        (Quota::sliding_log(2_000, secs(5)), 4, 0.1, (NOW, NOW)),
        (Quota::token_bucket(2_000, secs(10)), 1, 0.5, (NOW, NOW)),
        (Quota::token_bucket(6_000, secs(20)).burst(500), 3, 0.3, (NOW, NOW)),
        (Quota::per_second(300), 3, 0.2, (NOW, NOW)),
        (Quota::token_bucket(30_000, secs(60)), 8, 1.0, (NOW, NOW)),
        (Quota::fixed_window(12_000, secs(20)), 5, 1.0, (NOW, NOW)),
        (Quota::sliding_window(200, secs(1)), 2, 0.3, (NOW, NOW)),
        (Quota::sliding_window(12_000, secs(20)), 5, 1.0, (NOW, NOW)),
        (Quota::sliding_log(9_000, secs(20)), 5, 1.0, (NOW, NOW)),
        (Quota::sliding_log(1_500, secs(5)), 6, 0.2, back),
        (Quota::token_bucket(6_000, secs(20)).burst(900), 6, 0.3, there),
        (Quota::fixed_window(1_500, secs(5)), 6, 0.1, there),
        (Quota::sliding_window(1_500, secs(5)), 6, 0.1, there),
    ];
    for (quota, height, share, way) in rows.into_iter().take(many([4, usize::MAX])) {
        simulate(Course { processes: 8, quota, overdraft: 0, height, share, way }).await;
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
