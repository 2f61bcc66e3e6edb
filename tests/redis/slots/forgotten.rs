//! A server that loses what it had.

use std::time::Duration;

use tollgate::Quota;

use super::{hold, left, limiter, until_left};
use crate::support::server::RedisServer;

#[tokio::test]
async fn what_a_flush_forgot_is_not_released_from_others_and_counts_again_after_a_third_of_a_life() {
    let (redis, quota) = (RedisServer::start(), Quota::concurrency(10).slot_ttl(Duration::from_secs(6)));
    let (one, other) = (limiter(&redis.url(), quota).await, limiter(&redis.url(), quota).await);
    let (forgotten, dropped) = (hold(&one, 6).await, hold(&one, 2).await);
    let _: String = redis.ask(&["FLUSHALL"]);
    let held = hold(&other, 6).await;
    drop(dropped);
    // The check comes after the releases, on the same connection.
    assert_eq!((left(&one).await, left(&other).await), (4, 4));
    until_left(&other, 0, Duration::from_secs(2 + 1 + 1)).await;
    drop(held);
    until_left(&other, 4, Duration::from_secs(1)).await;
    drop(forgotten);
    until_left(&other, 10, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_server_that_restarts_counts_its_slots_again() {
    let (mut redis, quota) = (RedisServer::start(), Quota::concurrency(10).slot_ttl(Duration::from_secs(3)));
    let limiter = limiter(&redis.url(), quota).await;
    let held = hold(&limiter, 6).await;
    redis.kill();
    tokio::time::sleep(Duration::from_millis(500)).await;
    redis.restart();
    until_left(&limiter, 4, Duration::from_secs(10)).await;
    drop(held);
    until_left(&limiter, 10, Duration::from_secs(5)).await;
}
