//! Redis killed, paused and back, as clients of an axum server see it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use http::HeaderMap;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate::store::BreakerState;
use tollgate::{Decision, Quota, RateLimitLayer, RedisStore, Source};

use super::rig::{ask, ms, per_user, source};
use crate::support::server::RedisServer;

/// Hardly a unit returns during a test.
const HUNDRED: Quota = Quota::token_bucket(100, Duration::from_secs(30 * 86_400));
const MANY: Quota = Quota::per_hour(100_000);

/// What a busy machine adds to any wait.
const BUSY: Duration = ms(900);
/// Limiting goes on within this time of the server's return.
const RETURN: Duration = ms(1_000);

/// An axum server, and a client of it.
struct App {
    layer: RateLimitLayer,
    address: SocketAddr,
    serving: JoinHandle<()>,
    client: Client<HttpConnector, Body>,
}

/// An answer, and how long it took.
struct Told {
    status: u16,
    source: String,
    headers: HeaderMap,
    took: Duration,
}

async fn with_source(request: Request, next: Next) -> axum::response::Response {
    let mut response = next.run(request).await;
    let source = response.extensions().get::<Decision>().map(Decision::source);
    let source = source.map_or("none".to_owned(), |source| format!("{source:?}"));
    response.headers_mut().insert("x-source", source.parse().expect("ASCII"));
    response
}

impl App {
    async fn start(redis: &RedisServer, quota: Quota, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> Self {
        let store = RedisStore::connect(&redis.url()).await.expect("the server was started");
        let layer = set(RateLimitLayer::new(store, per_user(quota))).expose_decisions();
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer.clone()).layer(from_fn(with_source));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it is bound");
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self { layer, address, serving, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn ask(&self, user: &str) -> Told {
        let request = Request::get(format!("http://{}/", self.address)).header("x-user", user);
        let request = request.body(Body::empty()).expect("a request");
        let start = Instant::now();
        let response = timeout(Duration::from_secs(20), self.client.request(request)).await;
        let response = response.expect("it takes far too long").expect("a response");
        let took = start.elapsed();
        let source = response.headers()["x-source"].to_str().expect("ASCII").to_owned();
        Told { status: response.status().as_u16(), source, headers: response.headers().clone(), took }
    }

    /// Asks until the breaker is open; no request waits longer than the budget.
    async fn break_open(&self) {
        for _ in 0..100 {
            let told = self.ask("breaking").await;
            assert!(told.took < ms(100) + BUSY, "{:?}", told.took);
            if self.layer.clone().live().breaker_state() == BreakerState::Open {
                return;
            }
        }
        panic!("the breaker does not open");
    }

    /// Asks until Redis decides again; returns how long that took.
    async fn time_to_return(&self) -> Duration {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if self.ask("returning").await.source == "Store" {
                assert_eq!(self.layer.clone().live().breaker_state(), BreakerState::Closed);
                return start.elapsed();
            }
            tokio::time::sleep(ms(5)).await;
        }
        panic!("Redis does not decide again");
    }

    /// How long the median of 400 requests takes, each decided by `source`. Those that probe wait.
    async fn median(&self, source: &str) -> Duration {
        let mut took = Vec::new();
        for _ in 0..400 {
            let told = self.ask("quick").await;
            assert_eq!(told.source, source);
            took.push(told.took);
        }
        took.sort_unstable();
        println!("median {:?}, p99 {:?}, most {:?}", took[200], took[395], took[399]);
        took[200]
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_or_paused_server_costs_no_client_more_than_the_budget_and_is_used_again_within_a_second() {
    let mut redis = RedisServer::start();
    let app = App::start(&redis, MANY, |layer| layer).await;
    for is_killed in [true, false, true, false] {
        assert_eq!(app.ask("ada").await.source, "Store", "killed: {is_killed}");
        if is_killed {
            redis.kill();
        } else {
            redis.pause();
        }
        app.break_open().await;
        let usual = app.median("Fallback").await;
        assert!(usual < ms(50), "{usual:?} while the breaker is open");
        tokio::time::sleep(ms(700)).await;
        let worst = app.ask("probe").await.took;
        assert!(worst < ms(100) + BUSY, "a probe waited {worst:?}");
        if is_killed {
            redis.restart();
        } else {
            redis.resume();
        }
        let waited = app.time_to_return().await;
        assert!(waited < RETURN, "{waited:?} after its return, killed: {is_killed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_that_is_cut_is_one_failure_however_many_wait_for_it() {
    let mut redis = RedisServer::start();
    let store = RedisStore::builder().timeout(Duration::from_secs(5)).connect(&redis.url()).await.expect("it runs");
    let layer = RateLimitLayer::new(store, per_user(MANY));
    assert_eq!(source(&ask(&layer, "ada").await), Source::Store);
    redis.pause();
    let waiting: Vec<_> = (0..64)
        .map(|_| layer.clone())
        .map(|layer| tokio::spawn(async move { source(&ask(&layer, "ada").await) }))
        .collect();
    tokio::time::sleep(ms(100)).await;
    redis.kill();
    for source in futures::future::join_all(waiting).await {
        assert_eq!(source.expect("a decision"), Source::Fallback);
    }
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_instance_keeps_its_share_of_the_limit_during_an_outage() {
    let mut redis = RedisServer::start();
    let three = |layer: RateLimitLayer| layer.instances(NonZeroU32::new(3).expect("three"));
    let apps = [App::start(&redis, HUNDRED, three).await, App::start(&redis, HUNDRED, three).await];
    redis.kill();
    for app in &apps {
        app.break_open().await;
        let told = futures::future::join_all((0..200).map(|_| app.ask("ada"))).await;
        let admitted = told.iter().filter(|told| told.status == 200).count();
        assert_eq!(admitted, 34, "a third of 100, rounded up");
        for told in told {
            assert_eq!(told.headers["ratelimit-policy"], "\"user\";q=100;w=2592000", "as it is configured");
        }
    }
    redis.restart();
    for app in &apps {
        assert!(app.time_to_return().await < RETURN);
    }
    let left = apps[0].ask("ada").await;
    assert_eq!((left.source.as_str(), left.headers["x-ratelimit-remaining"].to_str().unwrap()), ("Store", "99"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_flight_when_the_server_is_paused_wait_for_the_budget_and_no_longer() {
    let redis = RedisServer::start();
    let app = App::start(&redis, MANY, |layer| layer.timeout(ms(60))).await;
    assert_eq!(app.ask("ada").await.source, "Store");
    redis.pause();
    // Without the web server, so that all ask at the same time.
    let told = futures::future::join_all((0..32).map(|_| async {
        let (start, response) = (Instant::now(), ask(&app.layer, "ada").await);
        (start.elapsed(), response.status().as_u16(), source(&response))
    }));
    for (took, status, source) in told.await {
        assert!(took < ms(60) + BUSY, "{took:?}");
        assert_eq!((status, source), (200, Source::Fallback));
    }
    assert_eq!(
        app.layer.clone().live().breaker_state(),
        BreakerState::Closed,
        "they waited for the same silence: one failure"
    );
    app.break_open().await;
    redis.resume();
}

#[tokio::test]
async fn what_the_server_refuses_counts_and_lost_scripts_do_not() {
    let redis = RedisServer::start();
    let app = App::start(&redis, MANY, |layer| layer).await;
    for _ in 0..10 {
        let (): () = redis.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(app.ask("ada").await.source, "Store");
    }
    let replica = (&["REPLICAOF", "127.0.0.1", "1"][..], &["REPLICAOF", "NO", "ONE"][..]);
    let full = (&["CONFIG", "SET", "maxmemory", "1"][..], &["CONFIG", "SET", "maxmemory", "0"][..]);
    for (refuse, accept) in [replica, full] {
        let (): () = redis.ask(refuse);
        app.break_open().await;
        assert_eq!(app.ask("ada").await.source, "Fallback");
        let (): () = redis.ask(accept);
        let waited = app.time_to_return().await;
        assert!(waited < RETURN, "{waited:?} after {accept:?}");
    }
}
