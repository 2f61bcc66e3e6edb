//! Releases that have a hard way: clients that vanish, and servers that stand still.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::Quota;

use super::{ada, hold, left, limiter, until_left};
use crate::outages::REFUSALS;
use crate::support::server::RedisServer;
use crate::support::slow::many;

/// Nothing expires during a test.
const LONG: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(10);

fn quota(limit: u64) -> Quota {
    Quota::concurrency(limit).slot_ttl(LONG)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_vanish_all_at_once_leave_no_slots_behind() {
    let (redis, clients) = (RedisServer::start(), many([20_000, 100_000]));
    let limiter = limiter(&redis.url(), quota(clients)).await;
    let (mut held, key) = (Vec::new(), ada());
    while (held.len() as u64) < clients {
        held.extend(join_all((0..500).map(|_| limiter.acquire(&key))).await);
    }
    assert!(held.iter().all(|got| got.as_ref().is_ok_and(|(decision, _)| decision.is_allowed())));
    assert_eq!(left(&limiter).await, 0);
    let _: String = redis.ask(&["CONFIG", "RESETSTAT"]);
    drop(held);
    let took = until_left(&limiter, clients, SOON).await;
    println!("{clients} slots were free after {took:?}, and {} calls", redis.scripts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_were_not_sent_in_a_long_outage_are_sent_after_it() {
    let redis = RedisServer::start();
    let limiter = limiter(&redis.url(), quota(300)).await;
    let held = hold(&limiter, 200).await;
    let control = redis.session();
    // The server goes on, and nobody else is let in.
    let _: String = control.ask(&["CONFIG", "SET", "maxclients", "1"]);
    let _: i64 = control.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    sleep(Duration::from_millis(200)).await;
    drop(held);
    // Settlements wait for a connection for 10 s.
    sleep(Duration::from_millis(12_500)).await;
    let _: String = control.ask(&["CONFIG", "SET", "maxclients", "1000"]);
    let took = until_left(&limiter, 300, SOON).await;
    println!("the slots were free {took:?} after the outage");
}

#[tokio::test]
async fn slots_that_are_released_while_redis_refuses_to_write_are_free_when_it_writes_again() {
    for [refuse, write] in REFUSALS {
        let redis = RedisServer::start();
        let limiter = limiter(&redis.url(), quota(10)).await;
        let held = hold(&limiter, 10).await;
        let () = redis.ask(refuse);
        drop(held);
        sleep(Duration::from_millis(300)).await;
        let () = redis.ask(write);
        until_left(&limiter, 10, Duration::from_secs(1)).await;
    }
}
