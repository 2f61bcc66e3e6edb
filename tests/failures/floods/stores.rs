//! State that a store cannot use, and settlements that do not arrive.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{Ask, Change, Receipt, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, RateLimitLayer, RedisStore};

use super::{FLOOD, Row, assert_bounded, run, send_twice};
use crate::rig::per_user;
use crate::support::checks::check;
use crate::support::server::RedisServer;
use crate::support::time::memory;

const AMPLE: Quota = Quota::per_minute(1_000_000);

pub(super) const ROWS: [Row; 4] = [
    ("settlement_uncertain", || on_redis(async |redis, store| charges(redis, store, FLOOD).await)),
    ("settlement_unsent", || on_redis(async |redis, store| charges(redis, store, 4_096 + FLOOD).await)),
    ("state_ahead", || run(clocks_that_step_back())),
    ("state_foreign", || on_redis(values_of_another_program)),
];

#[test]
fn a_flood_of_state_and_settlements_is_few_lines() {
    assert_bounded(&ROWS);
}

/// A clock that steps back by two hours, after which the state of each key is ahead of it.
async fn clocks_that_step_back() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), per_user(AMPLE));
    send_twice(layer.clone()).await;
    clock.set(clock.now().saturating_sub(Duration::from_secs(7_200)));
    send_twice(layer).await;
}

fn on_redis(flood: impl AsyncFn(RedisServer, RedisStore)) {
    let redis = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let settings = RedisStore::builder().timeout(Duration::from_secs(10));
        let store = settings.connect(&redis.url()).await.expect("the server was started");
        flood(redis, store).await;
    });
}

/// Another program that writes to each key in Redis.
async fn values_of_another_program(redis: RedisServer, store: RedisStore) {
    const OVERWRITE: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('SET', key, 'theirs') end";
    let layer = RateLimitLayer::new(store, per_user(AMPLE));
    send_twice(layer.clone()).await;
    let (): () = redis.ask(&["EVAL", OVERWRITE, "0"]);
    send_twice(layer).await;
}

/// So many charges for more than was taken, which Redis holds up until it ends.
async fn charges(redis: RedisServer, store: RedisStore, count: usize) {
    let decided = store.decide(&[check("hot", AMPLE, 1)], Ask::default()).wait().await.expect("Redis decides");
    let () = redis.ask(&["CLIENT", "PAUSE", "60000", "ALL"]);
    let receipt = || Receipt::new(decided.receipt.store(), decided.receipt.items().iter().cloned());
    let charge = [Settlement::new(0, Change::Charge(5))];
    let settled: Vec<_> = (0..count).map(|_| store.settle(receipt(), &charge)).collect();
    sleep(Duration::from_millis(100)).await;
    drop((redis, settled));
    sleep(Duration::from_millis(100)).await;
}
