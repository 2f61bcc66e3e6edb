//! Many clients at once on the system's clock: of windows in which hardly a unit returns.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::oneshot;
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::server::RedisServer;

const MONTH: Duration = Duration::from_secs(30 * 86_400);
const AMPLE: u64 = 10_000;
const CLIENTS: usize = 16;
const REQUESTS: usize = 60;
/// What a bucket may be from it: it refills a unit in four minutes, and keeps parts of units.
const NEAR: u64 = 3;

type Text = Full<Bytes>;

/// What one request does, and owes at its end.
#[derive(Clone, Copy)]
struct Script {
    cost: u64,
    charges: [u64; 2],
    refund: u64,
    end: End,
    /// What the handle charges and refunds after the response, if it is kept.
    late: Option<[u64; 2]>,
    /// Whether the handle flushes after each change.
    flushes: bool,
}

#[derive(Clone, Copy)]
enum End {
    Counts,
    CountsNot,
    ActualCost(u64),
    Dropped,
}

impl Script {
    fn random(rng: &mut Rng) -> Self {
        let end = match rng.u32(..4) {
            0 => End::Counts,
            1 => End::CountsNot,
            2 => End::ActualCost(rng.u64(..9)),
            _ => End::Dropped,
        };
        let charges = [rng.u64(..5), rng.u64(..5)];
        let late = (!matches!(end, End::Dropped) && rng.bool()).then(|| [rng.u64(..5), rng.u64(..5)]);
        Self { cost: rng.u64(1..4), charges, refund: rng.u64(..6), end, late, flushes: rng.bool() }
    }

    /// Passes some time, in which the store may settle what was changed.
    async fn after_change(self, handle: &RateLimitHandle) {
        if self.flushes {
            handle.flush().await.expect("the store answers");
        } else {
            tokio::task::yield_now().await;
        }
    }

    fn owed(self) -> u64 {
        let by_then = match self.end {
            End::Counts | End::Dropped => (self.cost + self.charges[0] + self.charges[1]).saturating_sub(self.refund),
            End::CountsNot => 0,
            End::ActualCost(units) => units,
        };
        self.late.map_or(by_then, |[charge, refund]| (by_then + charge).saturating_sub(refund))
    }
}

/// Serves as the script says, and says so before it hangs.
async fn serve(mut request: Request<Text>) -> Result<Response<Text>, Infallible> {
    let handle = request.extensions().get::<RateLimitHandle>().cloned().expect("the layer is outside");
    let script = *request.extensions().get::<Script>().expect("each request has one");
    let hangs = request.extensions_mut().remove::<Arc<std::sync::Mutex<Option<oneshot::Sender<()>>>>>();
    handle.charge(script.charges[0]);
    script.after_change(&handle).await;
    handle.charge(script.charges[1]);
    handle.refund(script.refund);
    let mut response = Response::new(Text::default());
    match script.end {
        End::Counts => *response.status_mut() = StatusCode::BAD_GATEWAY,
        End::CountsNot => {}
        End::ActualCost(units) => {
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response.extensions_mut().insert(ActualCost(units));
        }
        End::Dropped => {
            let hangs = hangs.and_then(|hangs| hangs.lock().ok()?.take());
            let _ = hangs.expect("each request has one").send(());
            return pending().await;
        }
    }
    if script.late.is_some() {
        response.extensions_mut().insert(handle);
    }
    Ok(response)
}

fn policy(quota: Quota) -> Policy {
    let cost = |parts: &http::request::Parts| parts.extensions.get::<Script>().map_or(1, |script| script.cost);
    Policy::new("policy", quota).cost_by(cost).metered().count(Count::failures())
}

/// One client's requests, one after the other; returns what they owe.
async fn ask(layer: RateLimitLayer, mut rng: Rng) -> u64 {
    let mut owed = 0;
    for _ in 0..REQUESTS {
        let script = Script::random(&mut rng);
        let (hangs, hung) = oneshot::channel();
        let mut request = Request::new(Text::default());
        request.extensions_mut().insert(script);
        request.extensions_mut().insert(Arc::new(std::sync::Mutex::new(Some(hangs))));
        let served = layer.layer(service_fn(serve)).oneshot(request);
        if matches!(script.end, End::Dropped) {
            tokio::select! {
                _ = served => panic!("it hangs"),
                told = hung => told.expect("it is served"),
            }
        } else {
            let response = served.await.expect("it does not fail");
            assert_ne!(response.status(), StatusCode::TOO_MANY_REQUESTS, "there are enough units");
            if let Some([charge, refund]) = script.late {
                let handle = response.extensions().get::<RateLimitHandle>().expect("it was kept");
                handle.charge(charge);
                script.after_change(handle).await;
                handle.refund(refund);
            }
        }
        owed += script.owed();
    }
    owed
}

/// What all clients owe, over the stores in turn.
async fn crowd(stores: &[Arc<dyn Store>], quota: Quota) -> u64 {
    let seed = fastrand::u64(..);
    println!("{quota}: seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let clients = (0..CLIENTS).map(|number| {
        let layer = RateLimitLayer::new(Arc::clone(&stores[number % stores.len()]), policy(quota));
        tokio::spawn(ask(layer, rng.fork()))
    });
    let mut owed = 0;
    for client in clients.collect::<Vec<_>>() {
        owed += client.await.expect("it ends");
    }
    owed
}

async fn left(store: &dyn Store, quota: Quota) -> u64 {
    // Changes that follow answers are on their way for a moment.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let counter = Counter::new("policy".try_into().expect("a valid name"), Key::new("global", ""), quota);
    let looked = store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
    looked.expect("the store answers").decision.outcomes()[0].remaining()
}

const QUOTAS: [Quota; 4] = [
    Quota::fixed_window(AMPLE, MONTH),
    Quota::sliding_window(AMPLE, MONTH),
    Quota::sliding_log(AMPLE, MONTH),
    Quota::token_bucket(AMPLE, MONTH),
];

/// Checks that all is there but what is owed.
async fn assert_owed(stores: &[Arc<dyn Store>], quota: Quota, what: &str) {
    let owed = crowd(stores, quota).await;
    let left = left(&stores[0], quota).await;
    let near = if quota.algorithm() == tollgate::policy::Algorithm::TokenBucket { NEAR } else { 0 };
    assert!(left.abs_diff(AMPLE - owed) <= near, "{what}, {quota}: {left} left, {owed} owed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_owes_what_it_should_in_memory() {
    for quota in QUOTAS {
        assert_owed(&[Arc::new(MemoryStore::new())], quota, "memory").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_two_servers_owes_what_it_should_in_one_redis() {
    for quota in QUOTAS {
        let server = RedisServer::start();
        let connect = async || RedisStore::builder().timeout(Duration::from_secs(10)).connect(&server.url()).await;
        let stores: [Arc<dyn Store>; 2] = [
            Arc::new(connect().await.expect("the server was started")),
            Arc::new(connect().await.expect("the server was started")),
        ];
        assert_owed(&stores, quota, "Redis").await;
    }
}
