//! Clients that go away, at every point where their request waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::poll_immediate;
use http::{Request, Response};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate::store::Store;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, RedisStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::everybody;
use crate::support::server::RedisServer;

const REQUESTS: usize = 100;
const MOST_POLLS: usize = 20;
const LIMIT: u64 = 10_000;
/// No unit is there again while a slow machine runs the test.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Checks, with policies that keep and that give back what dropped requests took, that units are accounted for and
/// nothing stays.
async fn assert_accounted(store: impl Store) {
    let back = Policy::new("back", Quota::sliding_log(LIMIT, MONTH)).refund_dropped();
    let layer = RateLimitLayer::new(store, Policy::new("kept", Quota::fixed_window(LIMIT, MONTH))).policy(back);
    let limiter = layer.clone().live().limiter();
    let taken = async || {
        let look = limiter.peek(&everybody()).await.expect("the store is there");
        [0, 1].map(|place: usize| LIMIT - look.outcomes()[place].remaining())
    };
    assert_eq!(taken().await, [0, 0]);
    let tasks = Handle::current().metrics().num_alive_tasks();
    let (calls, live) = (Arc::<AtomicU64>::default(), Arc::new(()));
    let (called, lives) = (Arc::clone(&calls), Arc::clone(&live));
    let service = layer.layer(service_fn(move |_: Request<String>| {
        called.fetch_add(1, Ordering::SeqCst);
        let live = Arc::clone(&lives);
        async move {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            drop(live);
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    }));
    let [mut answered, mut served, mut undecided] = [0; 3];
    for polls in (0..MOST_POLLS).cycle().take(REQUESTS) {
        let before = calls.load(Ordering::SeqCst);
        let (mut response, mut is_answered) = (Box::pin(service.clone().oneshot(Request::new(String::new()))), false);
        for _ in 0..polls {
            is_answered = poll_immediate(&mut response).await.is_some();
            if is_answered {
                break;
            }
            // Long enough for Redis to answer now and then.
            sleep(Duration::from_micros(100)).await;
        }
        match calls.load(Ordering::SeqCst) > before {
            _ if is_answered => answered += 1,
            true => served += 1,
            false => undecided += 1,
        }
    }
    assert!(answered > 0 && served > 0, "{answered} {served}");
    for _ in 0..400 {
        if Handle::current().metrics().num_alive_tasks() > tasks {
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(Handle::current().metrics().num_alive_tasks() <= tasks, "tasks are left");
    assert_eq!(Arc::strong_count(&live), 2, "a future of the service is left");
    let [kept, back] = taken().await;
    let done = answered + served;
    assert!((done..=done + undecided).contains(&kept), "{kept} of {done} and at most {undecided} are kept");
    assert!((answered..=answered + undecided).contains(&back), "of {answered} {back} are not given back");
}

#[tokio::test]
async fn requests_dropped_anywhere_are_accounted_for_and_leave_nothing() {
    assert_accounted(MemoryStore::new()).await;
    let server = RedisServer::start();
    let settings = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    assert_accounted(store.clone()).await;
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().count(), 2, "the store's connection, and the one that asks: {clients}");
}
