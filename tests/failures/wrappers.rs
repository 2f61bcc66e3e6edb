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

#[tokio::test(start_paused = true)]
async fn a_key_whose_leases_pay_does_not_hide_that_the_store_is_back() {
    let quota = Quota::per_second(1_000_000);
    let returned = longest_return(quota, |store| LeaseStore::builder(store).clock(ManualClock::paused()).build());
    let returned = returned.await;
    assert!(returned <= SOON, "{returned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_overdrawn_does_not_hide_that_the_store_is_back() {
    let quota = Quota::per_second(1_000_000);
    let overdrawn =
        |overdraft| move |store| LeaseStore::builder(store).overdraft(overdraft).clock(ManualClock::paused()).build();
    for overdraft in [10, 100_000] {
        let returned = longest_return(quota, overdrawn(overdraft)).await;
        assert!(returned <= SOON, "{returned:?} with an overdraft of {overdraft}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_refusals_are_remembered_does_not_hide_that_the_store_is_back() {
    let returned = longest_return(Quota::fixed_window(3, 24 * HOUR), |store| {
        DenyCache::builder(store).max_ttl(HOUR).clock(ManualClock::paused()).build()
    });
    let returned = returned.await;
    assert!(returned <= SOON, "{returned:?}");
}

#[tokio::test(start_paused = true)]
async fn nor_do_several_stores_around_each_other() {
    let returned = longest_return(Quota::per_second(1_000_000), |store| {
        let leases = LeaseStore::builder(store).clock(ManualClock::paused()).build();
        std::sync::Arc::new(DenyCache::builder(leases).max_ttl(HOUR).clock(ManualClock::paused()).build())
    });
    let returned = returned.await;
    assert!(returned <= SOON, "{returned:?}");
}
