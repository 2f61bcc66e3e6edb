//! One store on several runtimes, and outside of any.

use std::convert::Infallible;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::join_all;
use http::{Request, Response, StatusCode};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tollgate::store::{Change, Store};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, RedisStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::others::Tally;
use crate::rig::{AMPLE, BUDGET, assert_none_failed, check, connect, current_thread, give_back, left, ms, take, turn};
use crate::rig::{Rig, workers};
use crate::support::server::RedisServer;

/// What becomes of the runtime that connected, on its own thread, once it has.
type After = fn(Runtime);

const BUSY: Duration = ms(1_000);

fn ask_elsewhere(redis: &RedisServer, after: After) -> Tally {
    let (connected, told) = channel();
    let url = redis.url();
    let thread = thread::spawn(move || {
        let runtime = current_thread();
        connected.send(runtime.block_on(connect(&url))).expect("the test waits");
        after(runtime);
    });
    let (store, runtime) = (told.recv().expect("it connects"), workers());
    let tally = Tally::of_steady(runtime.handle(), &store, 20, ms(10));
    thread.join().expect("it does not fail");
    tally
}

#[test]
fn the_first_decisions_elsewhere_do_not_wait_for_the_runtime_that_connected() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let rows: [(&str, After); 3] = [
        ("is blocked", |runtime| runtime.block_on(async { thread::sleep(BUSY) })),
        ("is not driven", |_runtime| thread::sleep(BUSY)),
        ("has ended", drop),
    ];
    for (what, after) in rows {
        assert_none_failed(&format!("the runtime that connected {what}"), |_| ask_elsewhere(&redis, after));
    }
}

/// All that a store does, by many at once, each with a key of its own.
async fn use_all(store: RedisStore, number: usize) {
    let key = &format!("user-{number}");
    let receipt = take(&store, key, 5).await;
    give_back(&store, receipt);
    let whole = AMPLE.capacity();
    assert_eq!(left(&store, key).await, whole, "what was settled is seen by who asks after it");
    let counter = check(key, 0).counter;
    store.adjust(&counter, Change::Charge(7)).wait().await.expect("Redis answers");
    assert_eq!(left(&store, key).await, whole - 7);
    store.adjust(&counter, Change::Reset).wait().await.expect("Redis answers");
    assert_eq!(left(&store, key).await, whole);
}

#[test]
fn all_works_on_a_runtime_of_one_thread() {
    let (_turn, redis, local) = (turn(), RedisServer::start(), LocalSet::new());
    local.block_on(&current_thread(), async {
        let store = connect(&redis.url()).await;
        join_all((0..16).map(|number| use_all(store.clone(), number))).await;
        let spawned = (16..32).map(|number| tokio::spawn(use_all(store.clone(), number)));
        join_all(spawned).await.into_iter().for_each(|done| done.expect("none fails"));
        let spawned = (32..48).map(|number| tokio::task::spawn_local(use_all(store.clone(), number)));
        join_all(spawned).await.into_iter().for_each(|done| done.expect("none fails"));
    });
}

/// The statuses of three requests of a limit of two, by an executor that is not Tokio's.
fn served(store: impl Store) -> Vec<StatusCode> {
    let inner = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let service = RateLimitLayer::new(store, Policy::new("all", Quota::per_hour(2))).layer(inner);
    let ask = |_| block_on(service.clone().oneshot(Request::default())).expect("it cannot fail").status();
    (0..3).map(ask).collect()
}

#[test]
fn threads_outside_of_any_runtime_are_served_from_memory_and_by_a_store_that_a_runtime_connected() {
    let rig = Rig::new();
    let expected = [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS];
    assert_eq!(served(MemoryStore::new()), expected);
    assert_eq!(served(rig.store.clone()), expected);
}

#[test]
fn many_short_lives_leave_no_connections_behind() {
    let rig = Rig::new();
    let connections = || rig.redis.ask::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = connections();
    for round in 0..8 {
        let start = Arc::new(Barrier::new(8));
        let live = |number: usize| {
            let (store, start) = (rig.store.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                // It ends with its runtime.
                current_thread().block_on(use_all(store, round * 8 + number));
            })
        };
        let lives: Vec<_> = (0..8).map(live).collect();
        for life in lives {
            life.join().expect("each is answered");
        }
    }
    let end = Instant::now() + ms(2_000);
    while connections() > before && Instant::now() < end {
        thread::sleep(BUDGET / 10);
    }
    assert!(connections() <= before, "{before} connections before, {} in the end", connections());
}
