//! Requests that ask whether a store is back, and their clients.

use std::time::Duration;

use futures::{FutureExt, poll};
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::store::BreakerState;
use tollgate::{Quota, RateLimitLayer, Source};

use super::rig::{Mood, Moody, ask, broken, decided_by, layer, ms, state};
use crate::support::slow;

/// A layer whose store failed too often, and may be probed now.
async fn probed_next(store: &Moody, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> RateLimitLayer {
    let layer = broken(store, set).await;
    advance(ms(50)).await;
    layer
}

/// A request whose client goes away after a time, if it has no answer.
async fn impatient(layer: &RateLimitLayer, patience: Duration) {
    let _ = timeout(patience, ask(layer, "ada")).await;
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_heard_of_though_it_is_never_polled_again() {
    let store = Moody::new(Mood::Fails);
    let layer = probed_next(&store, |layer| layer).await;
    store.becomes(Mood::DecidesIn(ms(30)));
    let mut left = Box::pin(ask(&layer, "ada"));
    assert!(poll!(&mut left).is_pending());
    sleep(ms(31)).await;
    assert_eq!((state(&layer), decided_by(&layer).await), (BreakerState::Closed, Source::Store));
    assert_eq!(left.await.status(), 200, "its answer was kept");
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_a_client_or_an_answer_ends_with_the_budget_and_leaves_nothing_behind() {
    let store = Moody::new(Mood::Fails);
    let layer = probed_next(&store, |layer| layer.timeout(ms(400))).await;
    let before = tasks();
    store.becomes(Mood::Hangs);
    assert!(ask(&layer, "ada").now_or_never().is_none(), "it waits, and is dropped");
    sleep(ms(399)).await;
    assert_eq!((state(&layer), tasks()), (BreakerState::HalfOpen, before + 1));
    sleep(ms(2)).await;
    yield_now().await;
    assert_eq!((state(&layer), tasks()), (BreakerState::Open, before));
    store.becomes(Mood::Decides);
    sleep(ms(500)).await;
    assert_eq!(decided_by(&layer).await, Source::Store);
}

#[tokio::test(start_paused = true)]
async fn clients_that_all_leave_too_soon_do_not_keep_the_store_from_being_used_again() {
    for patience in [1, 5, 29].map(ms) {
        let store = Moody::new(Mood::Fails);
        let layer = probed_next(&store, |layer| layer).await;
        store.becomes(Mood::Hangs);
        for _ in 0..2_000 {
            impatient(&layer, patience).await;
        }
        store.becomes(Mood::DecidesIn(ms(30)));
        let start = Instant::now();
        while state(&layer) != BreakerState::Closed {
            assert!(start.elapsed() <= ms(1_000), "as clients leave after {patience:?}");
            impatient(&layer, patience).await;
            sleep(ms(1)).await;
        }
    }
}

/// How long after its return a store decides again that was away for a time, with a request each 10 ms.
async fn returns_after(budget: Duration, away: Mood, outage: Duration) -> Duration {
    let store = Moody::new(away);
    let layer = layer(&store, Quota::per_second(1_000_000)).timeout(budget);
    let request = async || {
        let layer = layer.clone();
        tokio::spawn(async move { ask(&layer, "ada").await });
        sleep(ms(10)).await;
    };
    let start = Instant::now();
    while start.elapsed() < outage {
        request().await;
    }
    assert_ne!(state(&layer), BreakerState::Closed, "a budget of {budget:?}");
    store.becomes(Mood::DecidesIn(ms(5)));
    let start = Instant::now();
    while state(&layer) != BreakerState::Closed && start.elapsed() < ms(60_000) {
        request().await;
    }
    start.elapsed()
}

/// When a store may come back, between two probes.
const PHASES: [u64; 2] = [2, 5];

#[tokio::test(start_paused = true)]
async fn limits_are_shared_again_within_a_second_of_the_stores_return_whatever_the_budget() {
    for budget in [10, 50, 100, 500, 1_000, 2_000, 5_000] {
        for away in [Mood::Hangs, Mood::Fails, Mood::FailsIn(ms(budget / 2))] {
            for phase in slow::seeds(PHASES) {
                let returned = returns_after(ms(budget), away, ms(budget + 3_000 + 110 * phase)).await;
                assert!(returned <= ms(520), "{returned:?} with a budget of {budget} ms: {away:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn probes_without_an_answer_are_bounded_though_there_is_no_budget() {
    let store = Moody::new(Mood::Fails);
    let layer = probed_next(&store, |layer| layer.timeout(Duration::MAX)).await;
    let before = tasks();
    store.becomes(Mood::Hangs);
    for _ in 0..600 {
        impatient(&layer, ms(1)).await;
        sleep(ms(499)).await;
        assert!(tasks() <= before + 34, "{} tasks", tasks());
    }
    store.becomes(Mood::Decides);
    sleep(ms(500)).await;
    assert_eq!(decided_by(&layer).await, Source::Store);
}
