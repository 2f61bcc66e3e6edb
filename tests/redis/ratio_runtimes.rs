//! Runtimes that end while they report to Redis.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, Quota, RedisStore};
use tollgate_ratio::RatioStore;

use super::stores::PATIENCE;
use crate::support::server::RedisServer;

/// Sends requests in a runtime until the store knows how many processes there are, or not; 30 s at most.
fn until_known(runtime: &Runtime, store: &RatioStore, is_known: bool) -> bool {
    let counter = Counter::new("all".try_into().expect("a valid name"), Key::new("k", "all"), Quota::per_second(100));
    let (start, checks) = (Instant::now(), [Check::new(counter, 1)]);
    runtime.block_on(async {
        while store.live().is_some() != is_known && start.elapsed() < Duration::from_secs(30) {
            if is_known {
                drop(store.decide(&checks, Ask::default()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    store.live().is_some() == is_known
}

#[test]
fn another_runtime_reports_to_redis_after_the_first_has_ended() {
    let server = RedisServer::start();
    let threads = || Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let first = threads();
    let tick = Duration::from_secs(1);
    let store = first.block_on(async {
        let tally = RedisStore::builder().timeout(PATIENCE).connect(&server.url()).await.expect("the server is there");
        RatioStore::builder(tally).tick(tick).ttl(2 * tick).build()
    });
    assert!(until_known(&first, &store, true), "the first reports");
    // In the middle of whatever it does.
    first.shutdown_background();
    let second = threads();
    assert!(until_known(&second, &store, false), "nobody reports");
    assert!(until_known(&second, &store, true), "the second reports");
}
