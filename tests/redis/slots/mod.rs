//! Slots in Redis: of processes that die, servers that forget, clients that vanish and runtimes that stop.

mod dying;
mod forgotten;
mod released;

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate::store::SlotGuard;
use tollgate::{Key, Limiter, Quota, RedisStore, Rule, Source};

use crate::stores::PATIENCE;

fn ada() -> Key {
    Key::new("user", "ada")
}

/// A limiter with a connection of its own, and more time than a busy machine needs: a decision without Redis would be
/// another one.
async fn limiter(url: &str, quota: Quota) -> Limiter {
    let store = RedisStore::builder().timeout(PATIENCE).connect(url).await.expect("Redis is there");
    Limiter::new(store, [Rule::new("streams", quota)]).timeout(PATIENCE)
}

async fn left(limiter: &Limiter) -> u64 {
    let looked = limiter.peek(&ada()).await.expect("Redis is there");
    assert_eq!(looked.source(), Source::Store);
    looked.outcomes()[0].remaining()
}

/// Takes slots, each by a check of its own.
async fn hold(limiter: &Limiter, slots: usize) -> Vec<SlotGuard> {
    let mut held = Vec::new();
    for _ in 0..slots {
        let (decision, guard) = limiter.acquire(&ada()).await.expect("Redis is there");
        assert!(decision.is_allowed() && !guard.is_empty());
        held.push(guard);
    }
    held
}

/// Waits until so many are left, and returns how long that took.
#[track_caller]
fn until_left(limiter: &Limiter, expected: u64, most: Duration) -> impl Future<Output = Duration> {
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        loop {
            let found = left(limiter).await;
            if found == expected {
                return start.elapsed();
            }
            assert!(start.elapsed() < most, "{caller}: {found} left after {most:?}, not {expected}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
