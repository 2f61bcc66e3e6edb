//! The example `stack`: who refuses a request is told apart, and no layer charges for what another one refuses.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::Request;
use tollgate::store::SlotGuard;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_shed::{Shed, WorkerShedLayer};

use crate::rig::{self, expect, line, now, text};
use crate::support::time::memory;

#[path = "../../examples/services/stack/app.rs"]
mod example;

/// The counters of all policies for the client that the requests come from, and what they hold.
const COUNTERS: [(&str, [&str; 2], Quota); 6] = [
    ("address", ["ip", "10.0.0.1"], Quota::per_second(50).burst(100)),
    ("fleet", ["global", ""], Quota::concurrency(500)),
    ("fleet.others", ["global", ""], Quota::concurrency(400)),
    ("user", ["user", "ada"], Quota::per_minute(600)),
    ("in-progress", ["user", "ada"], Quota::concurrency(10)),
    ("global", ["global", ""], Quota::per_second(5_000)),
];

const ADA: &str = "Bearer ada";

/// The service, its store, whose clock stands still, so that units come back only by refunds, and the clock of its worker
/// shedder.
struct Stack {
    app: Router,
    store: MemoryStore,
    clock: ManualClock,
}

fn stack() -> Stack {
    let (store, clock) = (memory(&ManualClock::new()), ManualClock::new());
    let worker = WorkerShedLayer::measured("worker", || 1.0).clock(clock.clone());
    Stack { app: example::app(store.clone(), worker), store, clock }
}

impl Stack {
    /// The response to a request of a user.
    fn send(&self, line: &str, user: &str) -> Response {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let request = Request::builder().method(method).uri(path).header("origin", "https://a.example");
        let request = request.header("authorization", user);
        let request = request.extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
        rig::send(&self.app, request.body(Body::empty()).expect("a request"))
    }

    fn limiters(&self) -> impl Iterator<Item = (&'static str, Limiter, Key, Quota)> {
        COUNTERS.into_iter().map(|(name, [kind, value], quota)| {
            (name, Limiter::new(self.store.clone(), [Rule::new(name, quota)]), Key::new(kind, value), quota)
        })
    }

    /// What each counter has left.
    fn left(&self) -> Vec<(&'static str, u64)> {
        self.limiters().map(|(name, limiter, key, _)| (name, rig::left(&limiter, &key)[0])).collect()
    }

    /// Takes all that a counter holds.
    fn spend(&self, counter: &str) -> SlotGuard {
        let (name, _, key, quota) = self.limiters().find(|(name, ..)| *name == counter).expect("a counter");
        let all = Limiter::new(self.store.clone(), [Rule::new(name, quota).cost(quota.capacity())]);
        let (decision, slots) = now(all.acquire(&key));
        assert!(decision.is_allowed(), "{name} was full");
        slots
    }

    /// Forgets all that was taken.
    fn reset(&self) {
        self.limiters().for_each(|(_, limiter, key, _)| assert!(now(limiter.reset(&key)) <= 1));
    }

    /// Has the worker shedder shed all that it may.
    fn overload(&self) {
        for _ in 0..15 {
            self.clock.advance(Duration::from_secs(10));
            self.send("GET /reports", ADA);
        }
        self.reset();
    }
}

#[test]
fn who_refuses_is_named_and_nobody_else_charges() {
    for (spent, status, kind, name) in [
        ("address", 429, "quota-exceeded", "address"),
        ("fleet", 503, "temporary-reduced-capacity", "fleet"),
        ("fleet.others", 503, "temporary-reduced-capacity", "fleet"),
        ("user", 429, "quota-exceeded", "user"),
        ("in-progress", 429, "quota-exceeded", "in-progress"),
        ("global", 429, "quota-exceeded", "global"),
        ("", 503, "temporary-reduced-capacity", "worker"),
    ] {
        let stack = stack();
        let _slots = if spent.is_empty() {
            stack.overload();
            SlotGuard::default()
        } else {
            stack.spend(spent)
        };
        let before = stack.left();
        let response = stack.send("GET /reports", ADA);
        assert_eq!(response.status(), status, "{name}");
        assert_eq!(response.extensions().get().map(Shed::name), (status == 503).then_some(name));
        // Scripts of other origins may read it.
        expect(response.headers(), &[("access-control-allow-origin", "*")]);
        assert!(line(response.headers(), "access-control-expose-headers").contains("retry-after"), "{name}");
        assert!(response.headers().contains_key("retry-after"), "{name}");
        let text = text(response);
        assert!(text.contains(&format!("http-problem-types#{kind}\"")), "{name}: {text}");
        assert!(text.contains(&format!("\"violated-policies\":[\"{name}\"]")), "{name}: {text}");
        assert_eq!(stack.left(), before, "{name}");
    }
}

#[test]
fn a_request_is_charged_by_all_layers_that_it_passes_and_the_health_check_by_none() {
    let stack = stack();
    for (path, user, status, by) in [
        ("GET /reports", ADA, 200, &["address", "user", "global"][..]),
        ("GET /reports", "", 401, &["address"]),
        ("GET /healthz", "", 200, &[]),
    ] {
        let before = stack.left();
        let served = |response: Response| (response.status().as_u16(), response.headers().contains_key("ratelimit"));
        assert_eq!(served(stack.send(path, user)), (status, !by.is_empty()));
        let charged = |(name, left)| (name, if by.contains(&name) { left - 1 } else { left });
        assert_eq!(stack.left(), before.into_iter().map(charged).collect::<Vec<_>>(), "{status}");
    }
}

#[test]
fn charges_are_served_whatever_is_shed() {
    let stack = stack();
    stack.overload();
    let _slots = ["fleet.others", "fleet"].map(|name| stack.spend(name));
    assert_eq!(stack.send("GET /reports", ADA).status(), 503);
    assert_eq!(text(stack.send("POST /charges", ADA)), "charged\n");
}
