//! Every interval d admits at most what the definition does in d + τ, and what may be overdrawn.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::LeaseStore;
use tollgate::test_util::ManualClock;

use super::definition::assert_admits;
use super::sim::{Far, Traffic, bursts, close, ms, secs};
use crate::support::slow::many;
use crate::support::time::memory;

const NOW: Duration = Duration::ZERO;

/// Processes that share a store, and how their clients and their links behave.
struct Course {
    processes: u64,
    quota: Quota,
    overdraft: u64,
    /// The most requests of a step.
    height: u64,
    share: f64,
    /// How long questions and answers travel.
    way: (Duration, Duration),
}

/// A minute of bursts, and what holds of it.
async fn simulate(course: Course) {
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
        close(&store).await;
    }
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
async fn processes_together_admit_at_most_an_overdraft_each_more_than_the_limit() {
    let rows = [
        (4, Quota::token_bucket(1_200, secs(10)).burst(800), 80, (ms(40), NOW)),
        (8, Quota::fixed_window(300, secs(1)), 30, (ms(160), NOW)),
        (4, Quota::per_second(300), 40, (ms(30), ms(70))),
        (4, Quota::fixed_window(800, secs(5)), 80, (ms(40), NOW)),
        (4, Quota::sliding_window(800, secs(5)), 80, (ms(40), NOW)),
        (4, Quota::sliding_log(800, secs(5)), 80, (ms(40), NOW)),
        (1, Quota::token_bucket(1_200, secs(10)).burst(800), 80, (ms(40), NOW)),
        (8, Quota::sliding_log(800, secs(5)), 80, (ms(40), NOW)),
    ];
    for (processes, quota, overdraft, way) in rows.into_iter().take(many([3, usize::MAX])) {
        simulate(Course { processes, quota, overdraft, height: (8 / processes).max(2), share: 0.1, way }).await;
    }
}
