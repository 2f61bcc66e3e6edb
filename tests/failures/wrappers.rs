//! Stores around a store that fails, which answer some requests by themselves.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::store::{BreakerState, DenyCache, LeaseStore, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Source};
use tollgate_test::RecordingStore;

use super::rig::{Mood, Moody, ask, ms, per_user, source};

const HOUR: Duration = Duration::from_secs(3_600);

/// The store inside.
type Inner = RecordingStore<FailingStore<MemoryStore>>;

/// A store that went away and came back, and a layer around a store around it.
struct Outage {
    store: Moody,
    layer: RateLimitLayer,
}

impl Outage {
    /// Asks for a user each 10 ms; whether any of it was decided here, and not by a local store instead.
    async fn ask(&self, user: &'static str, time: Duration) -> bool {
        let (start, mut here) = (Instant::now(), false);
        while start.elapsed() < time {
            let layer = self.layer.clone();
            let asked = tokio::spawn(async move { source(&ask(&layer, user).await) });
            sleep(ms(10)).await;
            if asked.is_finished() {
                here |= matches!(asked.await.expect("a source"), Source::Lease | Source::DenyCache);
            }
        }
        here
    }

    /// How long after the store's return its limits are shared again, as requests for one user come.
    async fn return_in(&self, mood: Mood) -> Duration {
        self.store.becomes(mood);
        let start = Instant::now();
        while self.layer.clone().live().breaker_state() != BreakerState::Closed && start.elapsed() < HOUR / 30 {
            self.ask("hot", ms(10)).await;
        }
        start.elapsed()
    }
}

/// How long the longest of several outages lasts on for a hot key, over a store around the one that
/// was away. Before it, the key was decided by that store itself.
async fn longest_return<S: Store>(quota: Quota, around: impl Fn(Inner) -> S) -> Duration {
    let mut longest = ms(0);
    for (away, back) in [Mood::Fails, Mood::Hangs].into_iter().zip([Mood::DecidesIn(ms(5)), Mood::Decides]) {
        for phase in 0..3 {
            let store = Moody::with_clock(Mood::Decides, &ManualClock::paused());
            let layer = RateLimitLayer::new(around(store.store()), per_user(quota));
            let outage = Outage { store, layer };
            assert!(outage.ask("hot", ms(500)).await, "{quota} is never decided here");
            outage.store.becomes(away);
            outage.ask("other", ms(500)).await;
            outage.ask("hot", ms(2_000 + 170 * phase)).await;
            assert_ne!(outage.layer.clone().live().breaker_state(), BreakerState::Closed);
            longest = longest.max(outage.return_in(back).await);
        }
    }
    println!("{quota}: {longest:?}");
    longest
}

/// Within a second, and the 100 ms that a decision may take.
const SOON: Duration = ms(1_100);

/// Two of them lease, one of these with much that is overdrawn, one remembers, and one does both.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_decided_here_does_not_hide_that_the_store_is_back() {
    let ample = Quota::per_second(1_000_000);
    let leases = |store: Inner| LeaseStore::builder(store).clock(ManualClock::paused());
    let longest = [
        longest_return(ample, |store| leases(store).build()).await,
        longest_return(ample, |store| leases(store).overdraft(10).build()).await,
        longest_return(ample, |store| leases(store).overdraft(100_000).build()).await,
        longest_return(Quota::fixed_window(3, 24 * HOUR), |store| {
            DenyCache::builder(store).max_ttl(HOUR).clock(ManualClock::paused()).build()
        })
        .await,
        longest_return(ample, |store| {
            let cache = DenyCache::builder(leases(store).build()).max_ttl(HOUR);
            std::sync::Arc::new(cache.clock(ManualClock::paused()).build())
        })
        .await,
    ];
    assert!(longest.iter().all(|returned| *returned <= SOON), "{longest:?}");
}
