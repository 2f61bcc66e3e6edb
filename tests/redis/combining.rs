//! Decisions of one process share script calls, and none depends on another's caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tokio::time::timeout;
use tollgate::store::{Ask, Change, Check, Counter, MaybeFuture, Settlement, Store, StoreDecision};
use tollgate::{Error, Key, Quota, RedisStore};

use crate::support::server::RedisServer;

const DAY: Duration = Duration::from_secs(86_400);

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder().timeout(Duration::from_secs(20)).connect(&server.url()).await;
    store.expect("the server is there")
}

fn check(key: usize, limit: u64, cost: u64) -> Check {
    let key = Key::new("user", key.to_string());
    Check::new(Counter::new("combined".try_into().expect("a valid name"), key, Quota::fixed_window(limit, DAY)), cost)
}

type Deciding = std::pin::Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>;

#[track_caller]
fn pending(store: &RedisStore, check: Check) -> Deciding {
    let MaybeFuture::Pending(deciding) = store.decide(&[check], Ask::default()) else { panic!("Redis is waited for") };
    deciding
}

/// Takes a unit, and what then remains; `None` for a caller that went away at some await.
async fn take_or_leave(store: &RedisStore, key: usize, limit: u64) -> Option<(bool, u64)> {
    let deciding = store.decide(&[check(key, limit, 1)], Ask::default()).wait();
    let decided = if fastrand::u8(..3) == 0 {
        timeout(Duration::from_micros(fastrand::u64(..400)), deciding).await.ok()?
    } else {
        deciding.await
    };
    let decision = decided.expect("no decision is lost").decision;
    Some((decision.is_allowed(), decision.outcomes()[0].remaining()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_lose_delay_and_duplicate_no_other_s_decision() {
    const TASKS: usize = 100;
    const EACH: usize = 1_000;
    const KEYS: usize = 10;
    const LIMIT: u64 = 1_000_000;
    let server = RedisServer::start();
    let store = store(&server).await;
    let left = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|_| {
        let (store, left) = (store.clone(), Arc::clone(&left));
        tokio::spawn(async move {
            let mut seen = Vec::with_capacity(EACH);
            for turn in 0..EACH {
                match take_or_leave(&store, turn % KEYS, LIMIT).await {
                    Some((allowed, remaining)) => {
                        assert!(allowed);
                        seen.push((turn % KEYS, remaining));
                    }
                    None => drop(left.fetch_add(1, Ordering::Relaxed)),
                }
            }
            seen
        })
    });
    let mut remainders: HashMap<(usize, u64), u32> = HashMap::new();
    for seen in join_all(tasks).await {
        for remainder in seen.expect("every decision that is waited for is made") {
            *remainders.entry(remainder).or_default() += 1;
        }
    }
    let (left, made) = (left.load(Ordering::Relaxed), remainders.len() as u64);
    assert!(remainders.values().all(|&times| times == 1), "no unit is told to two callers");
    assert_eq!(made + left, (TASKS * EACH) as u64);
    assert!(left > 1_000, "only {left} callers went away");
    let mut used = 0;
    for key in 0..KEYS {
        let look = store.decide(&[check(key, LIMIT, 0)], Ask::default()).wait().await.expect("decided").decision;
        used += LIMIT - look.outcomes()[0].remaining();
    }
    assert!((made..=made + left).contains(&used), "{used} used: {made} made, {left} left");
    assert_eq!(server.keys().len(), KEYS);
    let calls = server.scripts();
    assert!(calls < (TASKS * EACH) as u64 / 4, "{calls} calls are not shared");
}

#[tokio::test]
async fn a_caller_that_goes_away_before_its_call_takes_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut callers: Vec<_> = (0..5).map(|_| pending(&store, check(0, 100, 1))).collect();
    for caller in &mut callers {
        assert!(poll!(caller).is_pending());
    }
    drop(callers.drain(2..));
    for caller in callers {
        drop(caller.await.expect("decided"));
    }
    let look = store.decide(&[check(0, 100, 0)], Ask::default()).wait().await.expect("decided").decision;
    assert_eq!(look.outcomes()[0].remaining(), 98, "two calls were sent at once, the others waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_overtakes_a_settlement() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let charge = |decided: StoreDecision, units| {
        drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Charge(units))]));
    };
    for round in 0..500 {
        let ask = async |cost| pending(&store, check(round, 50, cost)).await.expect("the server is up");
        charge(ask(1).await, 9);
        assert_eq!(ask(0).await.decision.outcomes()[0].remaining(), 40, "{round}: a decision overtook the charge");
        charge(ask(1).await, 30);
        store.adjust(&check(round, 50, 1).counter, Change::Reset).wait().await.expect("the server is up");
        assert_eq!(ask(0).await.decision.outcomes()[0].remaining(), 50, "{round}: a reset overtook the charge");
    }
}
