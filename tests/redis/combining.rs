//! Decisions of one process share script calls, and none depends on another's caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tokio::time::timeout;
use tollgate::store::{Ask, Change, Check, Counter, MaybeFuture, Settlement, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Error, Key, Quota, RedisStore};

use crate::support::server::RedisServer;
use crate::support::time::{at, memory};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_holds_exactly_while_callers_go_away() {
    const LIMIT: u64 = 2_000;
    let server = RedisServer::start();
    let store = store(&server).await;
    let admitted = Arc::new(AtomicU64::new(0));
    let tasks = (0..64).map(|_| {
        let (store, admitted) = (store.clone(), Arc::clone(&admitted));
        tokio::spawn(async move {
            for _ in 0..100 {
                if let Some((true, _)) = take_or_leave(&store, 0, LIMIT).await {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no decision is lost");
    }
    let look = store.decide(&[check(0, LIMIT, 0)], Ask::default()).wait().await.expect("decided").decision;
    assert_eq!(look.outcomes()[0].remaining(), 0);
    assert!(admitted.load(Ordering::Relaxed) <= LIMIT);
}

#[tokio::test]
async fn a_batch_goes_on_without_the_caller_that_leads_it() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut callers: Vec<_> = (0..5).map(|_| pending(&store, check(0, 100, 1))).collect();
    for caller in &mut callers {
        assert!(poll!(caller).is_pending());
    }
    let last = callers.pop().expect("there are five");
    drop(callers);
    let decided = timeout(Duration::from_secs(5), last).await.expect("nobody has to lead").expect("decided");
    assert!(decided.decision.is_allowed());
}

#[tokio::test]
async fn who_leads_a_call_without_room_for_its_own_request_waits_no_longer_than_the_budget() {
    const BUDGET: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let store = RedisStore::builder().timeout(BUDGET).batch_size(4).connect(&server.url()).await.unwrap();
    let checks: Vec<_> = (0..3).map(|key| check(key, 100, 1)).collect();
    drop(store.decide(&checks, Ask::default()).wait().await.unwrap());
    server.pause();
    let start = std::time::Instant::now();
    // Two are sent, the third waits, and with the fourth there are six checks, of which three are sent.
    let mut first = join_all((0..4).map(|_| store.decide(&checks, Ask::default()).wait()));
    assert!(timeout(BUDGET * 3 / 4, &mut first).await.is_err(), "nobody answers");
    // It is the fourth's request that this one sends.
    let fifth = tokio::spawn(store.decide(&checks, Ask::default()).wait());
    assert!(first.await.iter().all(Result::is_err));
    assert!(start.elapsed() < BUDGET * 3 / 2, "{:?}", start.elapsed());
    assert!(fifth.await.expect("it does not panic").is_err());
    server.resume();
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

#[test]
fn a_runtime_that_ends_with_calls_in_flight_leaves_the_store_usable() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let store = first.block_on(async {
        let store = store(&server).await;
        let mut callers: Vec<_> = (0..3).map(|_| pending(&store, check(0, 100, 1))).collect();
        for caller in &mut callers {
            assert!(poll!(caller).is_pending());
        }
        store
    });
    drop(first);
    let decided = runtime().block_on(async {
        for _ in 0..5 {
            if let Ok(decided) = store.decide(&[check(0, 100, 1)], Ask::default()).wait().await {
                return Some(decided);
            }
        }
        None
    });
    assert!(decided.expect("a new runtime gets a new connection").decision.is_allowed());
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

/// A check over one of `keys` keys, each with an algorithm and a limit of its own.
fn any_check(keys: usize) -> Check {
    let key = fastrand::usize(..keys);
    let (limit, window) = (5 + key as u64 / 5 % 4, 30 * DAY);
    let quota = match key % 5 {
        0 => Quota::fixed_window(limit, window),
        1 => Quota::sliding_log(limit, window),
        2 => Quota::sliding_window(limit, window),
        3 => Quota::token_bucket(limit, window).burst(limit + 3),
        _ => Quota::leaky_bucket(limit, window),
    };
    let cost = fastrand::u64(..3);
    Check::new(Counter::new("any".try_into().expect("a valid name"), Key::new("user", key.to_string()), quota), cost)
}

async fn decisions(store: &impl Store, checks: &[Check]) -> Vec<Decision> {
    let deciding = checks.iter().map(|check| store.decide(std::slice::from_ref(check), Ask::default()).wait());
    join_all(deciding).await.into_iter().map(|decided| decided.expect("decided").decision).collect()
}

#[tokio::test]
async fn decisions_that_share_a_call_are_those_of_requests_one_by_one_whatever_their_rules() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let redis = RedisStore::builder().timeout(Duration::from_secs(20)).without_deny_cache().clock(clock.clone());
    let redis = redis.connect(&server.url()).await.expect("the server is there");
    let memory = memory(&clock);
    for round in 0..200 {
        clock.set(at(round * 3_600_000_000));
        // Many keys are mostly different, few are mostly not.
        let keys = if round % 2 == 0 { 2_000 } else { 20 };
        let checks: Vec<_> = (0..fastrand::usize(2..40)).map(|_| any_check(keys)).collect();
        let (ours, theirs) = (decisions(&redis, &checks).await, decisions(&memory, &checks).await);
        for ((check, ours), theirs) in checks.iter().zip(ours).zip(theirs) {
            assert_eq!(ours.outcomes(), theirs.outcomes(), "{check:?} in round {round}");
        }
    }
    let calls = server.scripts();
    assert!(calls < 1_000, "{calls} calls are not shared");
}
