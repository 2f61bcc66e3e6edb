//! Clients that go away, at every point where their request waits.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_immediate;
use http::{Request, Response};
use http_body_util::Full;
use tokio::runtime::Handle;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer, RedisStore, key};
use tower::{Layer, Service, service_fn};

use super::rig::HOUR;
use crate::support::server::RedisServer;

const MOST_POLLS: usize = 20;
const LIMIT: u64 = 10_000;
/// No unit is there again while a slow machine runs the test.
const QUOTA: Quota = Quota::fixed_window(LIMIT, Duration::from_secs(30 * 24 * 3_600));
const SECOND: Quota = Quota::sliding_log(LIMIT, HOUR);

/// What an inner service saw: calls, and futures that are still there.
#[derive(Clone, Default)]
struct Inner {
    calls: Arc<AtomicU64>,
    live: Arc<()>,
}

impl Inner {
    async fn serve(self) -> Result<Response<Full<Bytes>>, Infallible> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let live = Arc::clone(&self.live);
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        drop(live);
        Ok(Response::new(Full::default()))
    }
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Ends {
    answered: u64,
    /// Dropped in the inner service.
    served: u64,
    /// Dropped before it was called.
    undecided: u64,
}

/// Sends requests that are dropped after 0, 1, 2... polls, and once more.
async fn send_and_drop(layer: &RateLimitLayer, inner: &Inner) -> Ends {
    let mut ends = Ends::default();
    for polls in 0..MOST_POLLS {
        let seen = inner.clone();
        let mut service = layer.layer(service_fn(move |_: Request<Full<Bytes>>| seen.clone().serve()));
        let before = inner.calls.load(Ordering::SeqCst);
        let mut response = pin!(service.call(Request::new(Full::default())));
        let mut answered = false;
        for _ in 0..polls {
            if poll_immediate(&mut response).await.is_some() {
                answered = true;
                break;
            }
            // Long enough for Redis to answer now and then.
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        let called = inner.calls.load(Ordering::SeqCst) > before;
        *if answered {
            &mut ends.answered
        } else if called {
            &mut ends.served
        } else {
            &mut ends.undecided
        } += 1;
    }
    ends
}

async fn taken(store: &impl Store, policy: &str, quota: Quota) -> u64 {
    let counter = Counter::new(policy.try_into().expect("a valid name"), Key::new("global", ""), quota);
    let decided = store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await.expect("the store is there");
    LIMIT - decided.decision.outcomes()[0].remaining()
}

/// Checks, with policies that keep and that give back what dropped requests took, that units are
/// accounted for and nothing stays.
async fn assert_accounted(store: impl Store + Clone) {
    taken(&store, "warm", QUOTA).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let inner = Inner::default();
    let layer = RateLimitLayer::composite(store.clone())
        .policy(Policy::new("kept", QUOTA).key(key::global()))
        .policy(Policy::new("back", SECOND).key(key::global()).refund_dropped());
    let mut all = Ends::default();
    for _ in 0..5 {
        let ends = send_and_drop(&layer, &inner).await;
        all.answered += ends.answered;
        all.served += ends.served;
        all.undecided += ends.undecided;
    }
    assert!(all.answered > 0 && all.served > 0, "{all:?}");
    for _ in 0..400 {
        if Handle::current().metrics().num_alive_tasks() <= tasks {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(Handle::current().metrics().num_alive_tasks() <= tasks, "tasks are left");
    assert_eq!(Arc::strong_count(&inner.live), 1, "an inner future is left");
    let (kept, back) = (taken(&store, "kept", QUOTA).await, taken(&store, "back", SECOND).await);
    let done = all.answered + all.served;
    assert!((done..=done + all.undecided).contains(&kept), "{kept} units are kept of {all:?}");
    let most = all.answered + all.undecided;
    assert!((all.answered..=most).contains(&back), "{back} units are not given back of {all:?}");
}

#[tokio::test]
async fn requests_dropped_anywhere_are_accounted_for_and_leave_nothing() {
    assert_accounted(MemoryStore::new()).await;
    let server = RedisServer::start();
    let settings = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    assert_accounted(store).await;
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().count(), 2, "the store's connection, and the one that asks: {clients}");
}
