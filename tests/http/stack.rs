//! The example `stack`: who refuses a request is told apart, and no layer charges for what another one refuses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use http::{HeaderMap, Request};
use tokio::time::{sleep, timeout};
use tollgate::store::{SlotGuard, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, Quota, RedisStore, Rule};
use tollgate_shed::{Shed, WorkerShedLayer};
use tower::ServiceExt;

use crate::support::server::RedisServer;
use crate::support::time::memory;

#[path = "../../examples/services/stack/app.rs"]
mod example;

/// The counters of all policies for the client that the requests come from, and what they hold.
const COUNTERS: [(&str, &str, Quota); 6] = [
    ("address", "ip:10.0.0.1", Quota::per_second(50).burst(100)),
    ("fleet", "global:", Quota::concurrency(500)),
    ("fleet.others", "global:", Quota::concurrency(400)),
    ("user", "user:ada", Quota::per_minute(600)),
    ("in-progress", "user:ada", Quota::concurrency(10)),
    ("global", "global:", Quota::per_second(5_000)),
];

/// A store whose clock stands still, so that units come back only by refunds; the service on it; and a worker shedder
/// by the clock of the test.
struct Stack {
    name: &'static str,
    store: Arc<dyn Store>,
    app: Router,
    clock: ManualClock,
}

/// What a request received.
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
    shed_by: Option<String>,
}

async fn on_each_store(test: impl AsyncFn(Stack)) {
    let stack = |name, store: Arc<dyn Store>| {
        let clock = ManualClock::new();
        let worker = WorkerShedLayer::measured("worker", || 1.0).clock(clock.clone());
        Stack { name, app: example::app(Arc::clone(&store), worker), store, clock }
    };
    test(stack("memory", Arc::new(memory(&ManualClock::new())))).await;
    let server = RedisServer::start();
    let redis = RedisStore::builder().clock(ManualClock::new()).timeout(Duration::from_secs(10));
    let redis = redis.connect(&server.url()).await.expect("the server was started");
    test(stack("Redis", Arc::new(redis))).await;
}

impl Stack {
    async fn send(&self, line: &str, user: Option<&str>) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path).header("origin", "https://a.example");
        if let Some(user) = user {
            request = request.header("authorization", format!("Bearer {user}"));
        }
        let mut request = request.body(Body::empty()).expect("a request");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
        let (parts, body) = self.app.clone().oneshot(request).await.expect("it does not fail").into_parts();
        let text = to_bytes(body, usize::MAX).await.expect("a body");
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(text.into()).expect("text"),
            shed_by: parts.extensions.get::<Shed>().map(|shed| shed.name().to_owned()),
        }
    }

    fn limiter(&self, name: &str, quota: Quota, cost: u64) -> Limiter {
        Limiter::new(Arc::clone(&self.store), [Rule::new(name, quota).cost(cost)])
    }

    /// What each counter has left.
    async fn left(&self) -> Vec<(&'static str, u64)> {
        let mut left = Vec::new();
        for (name, key, quota) in COUNTERS {
            let decision = self.limiter(name, quota, 1).peek(&key_of(key)).await.expect("the store decides");
            left.push((name, decision.outcomes()[0].remaining()));
        }
        left
    }

    /// Waits until the counters have this left: what was returned may still be on its way.
    async fn until_left(&self, expected: &[(&'static str, u64)], after: &str) {
        let mut last = Vec::new();
        let all = async {
            while {
                last = self.left().await;
                last != expected
            } {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(Duration::from_secs(20), all).await.is_err() {
            assert_eq!(last, expected, "{}: after {after}", self.name);
        }
    }

    /// Takes all that a counter holds.
    async fn spend(&self, name: &str) -> SlotGuard {
        let (_, key, quota) = COUNTERS.into_iter().find(|(other, ..)| *other == name).expect("a counter");
        let taken = self.limiter(name, quota, quota.capacity()).acquire(&key_of(key)).await;
        let (decision, slots) = taken.expect("the store decides");
        assert!(decision.is_allowed(), "{}: {name} was full", self.name);
        slots
    }

    /// Has the worker shedder shed all that it may.
    async fn overload(&self) {
        for _ in 0..15 {
            self.clock.advance(Duration::from_secs(10));
            self.send("GET /reports", Some("ada")).await;
        }
        self.reset().await;
    }

    /// Forgets all that was taken.
    async fn reset(&self) {
        for (name, key, quota) in COUNTERS {
            self.limiter(name, quota, 1).reset(&key_of(key)).await.expect("the store resets");
        }
    }
}

fn key_of(text: &str) -> Key {
    let (kind, value) = text.split_once(':').expect("a kind and a value");
    Key::new(kind, value)
}

/// Expects a refusal that names who refuses, as scripts of other origins may read it.
#[track_caller]
fn expect(answer: &Answer, status: u16, kind: &str, name: &str) {
    assert_eq!(answer.status, status, "{name}: {}", answer.text);
    assert!(answer.text.contains(&format!("http-problem-types#{kind}\"")), "{name}: {}", answer.text);
    assert!(answer.text.contains(&format!("\"violated-policies\":[\"{name}\"]")), "{name}: {}", answer.text);
    assert_eq!(answer.shed_by.as_deref(), (status == 503).then_some(name));
    assert!(answer.headers.contains_key("retry-after"), "{name}");
    assert_eq!(answer.headers["access-control-allow-origin"], "*", "{name}");
    let exposed = answer.headers["access-control-expose-headers"].to_str().expect("ASCII");
    assert!(exposed.contains("retry-after"), "{name}: {exposed}");
}

#[tokio::test]
async fn who_refuses_is_named_and_nobody_else_charges() {
    on_each_store(async |stack| {
        for (name, key, quota) in COUNTERS {
            let slots = stack.spend(name).await;
            let before = stack.left().await;
            let answer = stack.send("GET /reports", Some("ada")).await;
            match name {
                "fleet" | "fleet.others" => expect(&answer, 503, "temporary-reduced-capacity", "fleet"),
                _ => expect(&answer, 429, "quota-exceeded", name),
            }
            stack.until_left(&before, name).await;
            drop(slots);
            stack.limiter(name, quota, 1).reset(&key_of(key)).await.expect("the store resets");
        }
        stack.overload().await;
        let before = stack.left().await;
        let answer = stack.send("GET /reports", Some("ada")).await;
        expect(&answer, 503, "temporary-reduced-capacity", "worker");
        stack.until_left(&before, "the worker").await;
    })
    .await;
}

#[tokio::test]
async fn a_request_is_charged_by_all_layers_that_it_passes() {
    on_each_store(async |stack| {
        for (user, status, by) in [(Some("ada"), 200, &["address", "user", "global"][..]), (None, 401, &["address"])] {
            // In Redis, what was taken is forgotten in time.
            stack.reset().await;
            let before = stack.left().await;
            assert_eq!(stack.send("GET /reports", user).await.status, status, "{}", stack.name);
            let charged = |(name, left)| (name, if by.contains(&name) { left - 1 } else { left });
            stack.until_left(&before.into_iter().map(charged).collect::<Vec<_>>(), "a report").await;
        }
    })
    .await;
}

#[tokio::test]
async fn charges_are_served_whatever_is_shed_and_the_health_check_whatever_is_used_up() {
    on_each_store(async |stack| {
        stack.overload().await;
        let mut slots = vec![stack.spend("fleet.others").await, stack.spend("fleet").await];
        assert_eq!(stack.send("GET /reports", Some("ada")).await.status, 503, "{}", stack.name);
        let answer = stack.send("POST /charges", Some("ada")).await;
        assert_eq!((answer.status, &*answer.text), (200, "charged\n"), "{}", stack.name);
        for (name, key, quota) in COUNTERS.into_iter().filter(|(name, ..)| !name.starts_with("fleet")) {
            stack.limiter(name, quota, 1).reset(&key_of(key)).await.expect("the store resets");
            slots.push(stack.spend(name).await);
        }
        let answer = stack.send("GET /healthz", None).await;
        assert_eq!((answer.status, &*answer.text), (200, "ok\n"), "{}", stack.name);
        assert!(!answer.headers.contains_key("ratelimit"), "{}", stack.name);
    })
    .await;
}
