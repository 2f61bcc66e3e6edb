//! Slots that requests hold, and those that their store has lost.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};

use super::watch::Watch;

const HELD: &str = "tollgate_slots_held";
const LOST: &str = "tollgate_slots_lost_total";

#[tokio::test]
async fn slots_are_counted_as_long_as_they_are_held_and_when_they_are_lost() {
    let watch = Watch::start();
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let quota = Quota::concurrency(10).slot_ttl(Duration::from_secs(3));
    let limiter = Limiter::new(store, [Rule::new("streams", quota).cost(2)]);
    let ada = Key::new("user", "ada");
    // By how much it has changed since the last look.
    let of = |name: &str| watch.changes().get(name).copied().unwrap_or_default();
    let (_, first) = limiter.acquire(&ada).await.expect("memory never fails");
    let (_, second) = limiter.acquire(&ada).await.expect("memory never fails");
    assert_eq!(of(HELD), 4);
    drop(first);
    assert_eq!(of(HELD), -2);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(of(LOST), 0);

    limiter.reset(&ada).await.expect("memory never fails");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(of(LOST), 2);
    drop(second);
    assert_eq!(of(HELD), -2);
}
