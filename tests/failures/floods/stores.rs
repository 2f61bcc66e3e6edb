//! State that a store cannot use, and settlements that do not arrive.

use std::time::Duration;

use tollgate::store::{Ask, Change, Settlement, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{HybridStore, MemoryStore, Quota, RateLimitLayer, RedisStore};

use super::{Cause, FLOOD, Row, assert_bounded, run, send_many};
use crate::rig::per_user;
use crate::support::checks::check;
use crate::support::doubles::away;
use crate::support::server::RedisServer;
use crate::support::time::memory;

const AMPLE: Quota = Quota::per_minute(1_000_000);

pub(super) const ROWS: [Row; 4] = [
    ("settlement_uncertain", Cause::Flood(|| run(charges(|store| store.fail_with(away))))),
    ("settlement_unsent", Cause::Flood(|| run(charges(FailingStore::hang)))),
    ("state_ahead", Cause::Flood(|| run(clocks_that_step_back()))),
    ("state_foreign", Cause::Flood(values_of_another_program)),
];

#[test]
fn a_flood_of_state_and_settlements_is_few_lines() {
    assert_bounded(&ROWS);
}

/// A clock that steps back by two hours, after which the state of each key is ahead of it.
async fn clocks_that_step_back() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), per_user(AMPLE));
    send_many(&layer).await;
    clock.set(clock.now().saturating_sub(Duration::from_secs(7_200)));
    send_many(&layer).await;
}

/// Another program that writes to each key in Redis.
fn values_of_another_program() {
    const OVERWRITE: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('SET', key, 'theirs') end";
    let redis = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let settings = RedisStore::builder().budget(Duration::from_secs(10));
        let store = settings.connect(&redis.url()).await.expect("the server was started");
        let layer = RateLimitLayer::new(store, per_user(AMPLE));
        send_many(&layer).await;
        let (): () = redis.ask(&["EVAL", OVERWRITE, "0"]);
        send_many(&layer).await;
    });
}

/// Charges for more than was taken, by a store in the background, while the inner store does not make them.
async fn charges(fail: impl FnOnce(&FailingStore<MemoryStore>)) {
    const CHARGES: usize = 4_096 + FLOOD;
    let inner = FailingStore::new(MemoryStore::new());
    let store = HybridStore::builder(inner.clone()).build().expect("the defaults are valid");
    let mut receipts = Vec::new();
    for _ in 0..CHARGES {
        let decided = store.decide(&[check("hot", AMPLE, 1)], Ask::default()).wait().await.expect("memory never fails");
        receipts.push(decided.receipt);
    }
    fail(&inner);
    let settled: Vec<_> =
        receipts.into_iter().map(|receipt| store.settle(receipt, &[Settlement::new(0, Change::Charge(5))])).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(settled);
}
