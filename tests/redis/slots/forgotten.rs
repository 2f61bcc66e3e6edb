//! A server that loses what it had.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Quota;

use super::{hold, left, limiter, until_left};
use crate::support::server::RedisServer;

const S: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_a_flush_or_a_restart_forgot_is_not_released_from_others_and_counts_again_after_a_third_of_a_life() {
    let (mut redis, quota) = (RedisServer::start(), Quota::concurrency(10).slot_ttl(6 * S));
    let (one, other) = (limiter(&redis.url(), quota).await, limiter(&redis.url(), quota).await);
    for is_restarted in [false, true] {
        let (forgotten, dropped) = (hold(&one, 6).await, hold(&one, 2).await);
        if is_restarted {
            redis.kill();
            // Its connections are known to have ended.
            sleep(S / 2).await;
            redis.restart();
        } else {
            let _: String = redis.ask(&["FLUSHALL"]);
        }
        let held = hold(&other, 6).await;
        drop(dropped);
        // The check comes after the releases, on the same connection.
        assert_eq!((left(&one).await, left(&other).await), (4, 4), "restarted: {is_restarted}");
        until_left(&other, 0, (2 + 1 + 1) * S).await;
        drop(held);
        until_left(&other, 4, S).await;
        drop(forgotten);
        until_left(&other, 10, S).await;
    }
}
