//! Renewals: of all slots of a counter as one, and of many counters in few calls.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::{Key, Quota};

use super::{ada, left, limiter};
use crate::support::server::RedisServer;

const LIFE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn three_hundred_slots_of_a_key_are_renewed_by_a_few_calls() {
    let redis = RedisServer::start();
    let limiter = limiter(&redis.url(), Quota::concurrency(400).slot_ttl(LIFE)).await;
    let key = ada();
    let held = join_all((0..300).map(|_| limiter.acquire(&key))).await;
    assert_eq!(left(&limiter).await, 100);
    let _: String = redis.ask(&["CONFIG", "RESETSTAT"]);
    sleep(2 * LIFE + LIFE / 4).await;
    let renewals = redis.scripts();
    assert!((2..=20).contains(&renewals), "{renewals} calls");
    assert_eq!(left(&limiter).await, 100, "they live on");
    drop(held);
}

#[tokio::test]
async fn slots_of_three_hundred_keys_are_renewed_by_a_few_calls() {
    let redis = RedisServer::start();
    let limiter = limiter(&redis.url(), Quota::concurrency(1).slot_ttl(LIFE)).await;
    let keys: Vec<_> = (0..300).map(|number| Key::new("user", number.to_string())).collect();
    let held = join_all(keys.iter().map(|key| limiter.acquire(key))).await;
    let _: String = redis.ask(&["CONFIG", "RESETSTAT"]);
    sleep(2 * LIFE + LIFE / 4).await;
    let renewals = redis.scripts();
    // Each slot at least twice: one by one that would be 600 calls.
    assert!((6..=120).contains(&renewals), "{renewals} calls");
    for key in &keys {
        let look = limiter.peek(key).await.expect("Redis is there");
        assert_eq!(look.outcomes()[0].remaining(), 0);
    }
    drop(held);
}
