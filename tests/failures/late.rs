//! What was taken for a request whose decision came too late, on a Redis that stops for a while.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tollgate::store::{Check, Counter, Deadline};
use tollgate::{
    Cost, HybridStore, Key, LeaseStore, Policy, Quota, RateLimitLayer, RedisStore, Source, Store,
};

use crate::rig::{ask, ms, per_user, source};
use crate::support::server::RedisServer;

const ONE: Quota = Quota::per_hour(1);
/// Of the store: much longer than a layer's, and than the pause.
const OWN: Duration = Duration::from_secs(20);
const LAYER: Duration = ms(50);
/// What is sent arrives within it, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

async fn connected(redis: &RedisServer) -> RedisStore {
    RedisStore::builder().budget(OWN).connect(&redis.url()).await.expect("the server was started")
}

fn check(cost: u64) -> Check {
    let counter = Counter { policy: "user".into(), key: Key::hashed("header x-user", "ada"), quota: ONE };
    Check::new(counter, cost)
}

/// Units left to the client.
async fn left(store: &RedisStore) -> u64 {
    let looked = store.decide(&[check(0)], Deadline::none()).wait().await.expect("Redis answers");
    looked.decision.outcomes()[0].remaining()
}

/// Whether the client has its unit back in time.
async fn comes_back(store: &RedisStore) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if left(store).await == 1 {
            return true;
        }
        sleep(ms(5)).await;
    }
    false
}
