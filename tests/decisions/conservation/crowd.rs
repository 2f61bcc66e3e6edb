//! Many clients at once on the system's clock: of windows in which hardly a unit returns.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tollgate::policy::{Algorithm, Count};
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, MemoryStore, Quota, RateLimitLayer, RedisStore};

use super::requests::{Command, policy, request};
use crate::support::server::RedisServer;

const MONTH: Duration = Duration::from_secs(30 * 86_400);
const AMPLE: u64 = 10_000;
const CLIENTS: usize = 16;
const REQUESTS: usize = 60;
/// What a bucket may be from it: it refills a unit in four minutes, and keeps parts of units.
const NEAR: u64 = 3;

/// A request that charges, refunds, and ends in one of four ways; returns what it owes.
async fn one(layer: &RateLimitLayer, rng: &mut Rng) -> u64 {
    let (cost, charges, refund, flushes) = (rng.u64(1..4), [rng.u64(..5), rng.u64(..5)], rng.u64(..6), rng.bool());
    let open = request(layer, "crowd", cost);
    let tell = |command| open.commands.send(command).expect("it is served");
    tell(Command::Charge(charges[0]));
    if flushes {
        tell(Command::Flush(true));
    }
    tell(Command::Charge(charges[1]));
    tell(Command::Refund(refund));
    let owed = (cost + charges[0] + charges[1]).saturating_sub(refund);
    let (status, real, owed) = match rng.u32(..4) {
        0 => (StatusCode::BAD_GATEWAY, None, owed),
        1 => (StatusCode::OK, None, 0),
        2 => {
            let units = rng.u64(..9);
            (StatusCode::BAD_GATEWAY, Some(units), units)
        }
        _ => {
            let (done, all) = oneshot::channel();
            tell(Command::Tell(done));
            all.await.expect("it is served");
            open.served.abort();
            return owed;
        }
    };
    tell(Command::Answer(status, real));
    assert_eq!(open.served.await.expect("it ends"), status, "there are enough units");
    let handle = open.handle.lock().expect("it is not poisoned").take().expect("it was served");
    if rng.bool() {
        return owed;
    }
    let [charge, refund] = [rng.u64(..5), rng.u64(..5)];
    handle.charge(charge);
    if flushes {
        handle.flush().await.expect("the store answers");
    }
    handle.refund(refund);
    (owed + charge).saturating_sub(refund)
}

/// Has all clients ask, over the stores in turn, and checks that all is left but what they owe.
async fn assert_owed(stores: &[Arc<dyn Store>], quota: Quota) {
    let seed = fastrand::u64(..);
    println!("{quota}: seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let clients = (0..CLIENTS).map(|number| {
        let store = Arc::clone(&stores[number % stores.len()]);
        let (layer, mut rng) = (RateLimitLayer::new(store, policy(quota).count(Count::failures())), rng.fork());
        tokio::spawn(async move {
            let mut owed = 0;
            for _ in 0..REQUESTS {
                owed += one(&layer, &mut rng).await;
            }
            owed
        })
    });
    let mut owed = 0;
    for client in clients.collect::<Vec<_>>() {
        owed += client.await.expect("it ends");
    }
    // Changes that follow answers are on their way for a moment.
    sleep(Duration::from_millis(300)).await;
    let counter = Counter::new("policy".try_into().expect("a name"), Key::new("header x-key", "crowd"), quota);
    let looked = stores[0].decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
    let left = looked.expect("the store answers").decision.outcomes()[0].remaining();
    let near = if quota.algorithm() == Algorithm::TokenBucket { NEAR } else { 0 };
    assert!(owed > AMPLE / 10 && left.abs_diff(AMPLE - owed) <= near, "{quota}: {left} left, {owed} owed");
}

const QUOTAS: [Quota; 4] = [
    Quota::fixed_window(AMPLE, MONTH),
    Quota::sliding_window(AMPLE, MONTH),
    Quota::sliding_log(AMPLE, MONTH),
    Quota::token_bucket(AMPLE, MONTH),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_owes_what_it_should_in_memory() {
    for quota in QUOTAS {
        assert_owed(&[Arc::new(MemoryStore::new())], quota).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_two_servers_owes_what_it_should_in_one_redis() {
    let server = RedisServer::start();
    for quota in QUOTAS {
        let connect = async || RedisStore::builder().timeout(Duration::from_secs(10)).connect(&server.url()).await;
        let stores: [Arc<dyn Store>; 2] =
            [Arc::new(connect().await.expect("it is up")), Arc::new(connect().await.expect("it is up"))];
        assert_owed(&stores, quota).await;
    }
}
