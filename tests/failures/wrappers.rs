//! Stores around a store that fails, which answer some requests by themselves.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::store::{BreakerState, DenyCache, LeaseStore, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Source};
use tollgate_test::RecordingStore;

use super::rig::{Mood, Moody, ask, ms, per_user, source, state};

const HOUR: Duration = Duration::from_secs(3_600);

/// The store inside.
type Inner = RecordingStore<FailingStore<MemoryStore>>;

/// Within a second, and the 100 ms that a decision may take.
const SOON: Duration = ms(1_100);

/// Asks for a user each 10 ms; whether any of it was decided here, and not by a local store instead.
async fn decided_here(layer: &RateLimitLayer, user: &'static str, time: Duration) -> bool {
    let (start, mut here) = (Instant::now(), false);
    while start.elapsed() < time {
        let layer = layer.clone();
        let asked = tokio::spawn(async move { source(&ask(&layer, user).await) });
        sleep(ms(10)).await;
        if asked.is_finished() {
            here |= matches!(asked.await.expect("a source"), Source::Lease | Source::DenyCache);
        }
    }
    here
}

/// Checks that several outages end soon after the store's return for a hot key, over a store around the one that was
/// away. Before, the key was decided by that store itself.
async fn assert_seen<S: Store>(name: &str, quota: Quota, around: impl Fn(Inner) -> S) {
    for (away, back) in [(Mood::Fails, Mood::DecidesIn(ms(5))), (Mood::Hangs, Mood::Decides)] {
        for phase in 0..3 {
            let store = Moody::with_clock(Mood::Decides, &ManualClock::paused());
            let layer = RateLimitLayer::new(around(store.store()), per_user(quota));
            assert!(decided_here(&layer, "hot", ms(500)).await, "{name}: it is never decided here");
            store.becomes(away);
            decided_here(&layer, "other", ms(500)).await;
            decided_here(&layer, "hot", ms(2_000 + 170 * phase)).await;
            assert_ne!(state(&layer), BreakerState::Closed);
            store.becomes(back);
            let start = Instant::now();
            while state(&layer) != BreakerState::Closed {
                assert!(start.elapsed() <= SOON, "{name}: {back:?} after {away:?}");
                decided_here(&layer, "hot", ms(10)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_decided_here_does_not_hide_that_the_store_is_back() {
    let ample = Quota::per_second(1_000_000);
    let leases = |store: Inner| LeaseStore::builder(store).clock(ManualClock::paused());
    assert_seen("leases", ample, |store| leases(store).build()).await;
    assert_seen("an overdraft", ample, |store| leases(store).overdraft(10).build()).await;
    assert_seen("much that is overdrawn", ample, |store| leases(store).overdraft(100_000).build()).await;
    let cached = |store| DenyCache::builder(store).max_ttl(HOUR).clock(ManualClock::paused()).build();
    assert_seen("refusals", Quota::fixed_window(3, 24 * HOUR), cached).await;
    let both = |store| {
        let cache = DenyCache::builder(leases(store).build()).max_ttl(HOUR);
        Arc::new(cache.clock(ManualClock::paused()).build())
    };
    assert_seen("leases and refusals", ample, both).await;
}
