//! Redis killed, paused and back, as clients of a layer see it.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate::store::BreakerState;
use tollgate::{Quota, RateLimitLayer, RedisStore, Source};

use super::rig::{MOST, ask, header, ms, per_user, source, state, told};
use crate::support::server::RedisServer;

/// Hardly a unit returns during a test.
const HUNDRED: Quota = Quota::token_bucket(100, Duration::from_secs(30 * 86_400));
const MANY: Quota = Quota::per_hour(100_000);

/// What a busy machine adds to any wait.
const BUSY: Duration = ms(900);
/// Limiting goes on within this time of the server's return.
const RETURN: Duration = ms(1_000);

async fn connected(redis: &RedisServer, quota: Quota, timeout: Duration) -> RateLimitLayer {
    let store = RedisStore::builder().timeout(timeout).connect(&redis.url()).await.expect("the server was started");
    RateLimitLayer::new(store, per_user(quota))
}

/// Who decides about a request, and how long that takes.
async fn timed(layer: &RateLimitLayer, user: &'static str) -> (Source, Duration) {
    let start = Instant::now();
    let source = source(&ask(layer, user).await);
    (source, start.elapsed())
}

/// Asks until the breaker is open; no request waits longer than the budget.
async fn break_open(layer: &RateLimitLayer) {
    let start = Instant::now();
    while state(layer) != BreakerState::Open {
        let (_, took) = timed(layer, "breaking").await;
        assert!(took < ms(100) + BUSY, "{took:?}");
        assert!(start.elapsed() < Duration::from_secs(20), "the breaker does not open");
    }
}

/// Asks until Redis decides again, which takes no longer than it may.
async fn assert_returns(layer: &RateLimitLayer, after: &str) {
    let start = Instant::now();
    while source(&ask(layer, "returning").await) != Source::Store {
        assert!(start.elapsed() < RETURN, "{after}: Redis does not decide again");
        sleep(ms(5)).await;
    }
    assert_eq!(state(layer), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_asks_outside_of_a_runtime_opens_no_breaker() {
    let redis = RedisServer::start();
    let layer = connected(&redis, MANY, Duration::from_secs(20)).await;
    let outside = layer.clone();
    let asking = thread::spawn(move || (0..2 * MOST).map(|_| block_on(timed(&outside, "ada")).0).collect::<Vec<_>>());
    assert_eq!(asking.join().expect("it is answered"), [Source::Fallback; 2 * MOST]);
    assert_eq!((state(&layer), timed(&layer, "ada").await.0), (BreakerState::Closed, Source::Store));
    let store = RedisStore::builder().runtime(Handle::current()).connect(&redis.url()).await;
    let layer = RateLimitLayer::new(store.expect("the server was started"), per_user(MANY));
    let asking = thread::spawn(move || block_on(timed(&layer, "ada")).0);
    assert_eq!(asking.join().expect("it is answered"), Source::Store, "by a store with a runtime of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_or_paused_server_costs_no_client_more_than_the_budget_and_is_used_again_within_a_second() {
    let mut redis = RedisServer::start();
    let layer = connected(&redis, MANY, ms(100)).await;
    for is_killed in [true, false, true, false] {
        assert_eq!(timed(&layer, "ada").await.0, Source::Store, "killed: {is_killed}");
        if is_killed {
            redis.kill();
        } else {
            redis.pause();
        }
        break_open(&layer).await;
        let mut took = Vec::new();
        for _ in 0..400 {
            let (source, time) = timed(&layer, "quick").await;
            assert_eq!(source, Source::Fallback);
            took.push(time);
        }
        took.sort_unstable();
        // Those that probe wait.
        assert!(took[200] < ms(50), "{:?} while the breaker is open", took[200]);
        sleep(ms(700)).await;
        let (_, worst) = timed(&layer, "probe").await;
        assert!(worst < ms(100) + BUSY, "a probe waited {worst:?}");
        if is_killed {
            redis.restart();
        } else {
            redis.resume();
        }
        assert_returns(&layer, if is_killed { "killed" } else { "paused" }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_that_is_cut_is_one_failure_however_many_wait_for_it() {
    let mut redis = RedisServer::start();
    let layer = connected(&redis, MANY, Duration::from_secs(5)).await;
    assert_eq!(timed(&layer, "ada").await.0, Source::Store);
    redis.pause();
    let waiting: Vec<_> = (0..64)
        .map(|_| layer.clone())
        .map(|layer| tokio::spawn(async move { source(&ask(&layer, "ada").await) }))
        .collect();
    sleep(ms(100)).await;
    redis.kill();
    for source in join_all(waiting).await {
        assert_eq!(source.expect("a decision"), Source::Fallback);
    }
    assert_eq!(state(&layer), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_instance_keeps_its_share_of_the_limit_during_an_outage() {
    let mut redis = RedisServer::start();
    let three = NonZeroU32::new(3).expect("three");
    let layers = [(); 2].map(|()| async { connected(&redis, HUNDRED, ms(100)).await.instances(three) });
    let layers = join_all(layers).await;
    redis.kill();
    for layer in &layers {
        break_open(layer).await;
        let responses = join_all((0..200).map(|_| ask(layer, "ada"))).await;
        let admitted = responses.iter().filter(|response| response.status() == 200).count();
        assert_eq!(admitted, 34, "a third of 100, rounded up");
        let advertised = |response| header(response, "ratelimit-policy") == "\"user\";q=100;w=2592000";
        assert!(responses.iter().all(advertised), "as it is configured");
    }
    redis.restart();
    for layer in &layers {
        assert_returns(layer, "killed").await;
    }
    let left = ask(&layers[0], "ada").await;
    assert_eq!((source(&left), header(&left, "x-ratelimit-remaining").as_str()), (Source::Store, "99"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_flight_when_the_server_is_paused_wait_for_the_budget_and_no_longer() {
    let redis = RedisServer::start();
    let layer = connected(&redis, MANY, ms(100)).await.timeout(ms(60));
    assert_eq!(timed(&layer, "ada").await.0, Source::Store);
    redis.pause();
    let (start, responses) = (Instant::now(), join_all((0..32).map(|_| ask(&layer, "ada"))).await);
    assert!(start.elapsed() < ms(60) + BUSY, "{:?}", start.elapsed());
    assert!(responses.iter().all(|response| told(response) == (200, Source::Fallback)));
    assert_eq!(state(&layer), BreakerState::Closed, "they waited for the same silence: one failure");
    break_open(&layer).await;
    redis.resume();
}

#[tokio::test]
async fn what_the_server_refuses_counts_and_lost_scripts_do_not() {
    let redis = RedisServer::start();
    let layer = connected(&redis, MANY, ms(100)).await;
    for _ in 0..10 {
        let (): () = redis.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(timed(&layer, "ada").await.0, Source::Store);
    }
    for (refuse, accept) in [
        (&["REPLICAOF", "127.0.0.1", "1"][..], &["REPLICAOF", "NO", "ONE"][..]),
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
    ] {
        let (): () = redis.ask(refuse);
        break_open(&layer).await;
        assert_eq!(timed(&layer, "ada").await.0, Source::Fallback);
        let (): () = redis.ask(accept);
        assert_returns(&layer, refuse[0]).await;
    }
}
