//! Renewals: of all slots of a counter as one, and of many counters in few calls.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::{Key, Quota};

use super::{ada, left, limiter};
use crate::support::server::RedisServer;

const LIFE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn slots_of_one_key_and_of_three_hundred_are_renewed_by_a_few_calls() {
    let redis = RedisServer::start();
    let of_one = limiter(&redis.url(), Quota::concurrency(400).slot_ttl(LIFE)).await;
    let of_many = limiter(&redis.url(), Quota::concurrency(1).slot_ttl(LIFE)).await;
    let (ada, keys) = (ada(), (0..300).map(|number| Key::new("user", number.to_string())).collect::<Vec<_>>());
    let held =
        join_all((0..300).map(|_| of_one.acquire(&ada)).chain(keys.iter().map(|key| of_many.acquire(key)))).await;
    assert_eq!(left(&of_one).await, 100);
    let _: String = redis.ask(&["CONFIG", "RESETSTAT"]);
    sleep(2 * LIFE + LIFE / 4).await;
    let renewals = redis.scripts();
    // Each at least twice: one by one that would be 1,200 calls.
    assert!((8..=140).contains(&renewals), "{renewals} calls");
    assert_eq!(left(&of_one).await, 100, "they live on");
    for key in &keys {
        let look = of_many.peek(key).await.expect("Redis is there");
        assert_eq!(look.outcomes()[0].remaining(), 0);
    }
    drop(held);
}
