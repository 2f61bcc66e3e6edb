//! The example `order`: what each layer sees of the others at its place, added in both ways.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use axum::routing::{Route, get};
use futures::stream;
use http::request::Builder;
use http::{HeaderMap, Request, StatusCode};
use tollgate::policy::Count;
use tollgate::response::exposed_headers;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::{Layer, Service, ServiceExt};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tracing::Level;

use crate::rig::{self, everybody};
use crate::support::log::Log;
use crate::support::time::memory;

#[path = "../../examples/services/order/app.rs"]
mod example;

const ORIGIN: &str = "https://a.example";
const ADDRESS: (&str, &str, Quota) = ("address", "ip", Quota::per_minute(30));
const USER: (&str, &str, Quota) = ("user", "user", Quota::per_minute(20));

/// The service, and its store, whose clock stands still.
struct App {
    name: &'static str,
    store: MemoryStore,
    router: Router,
}

/// What a request received.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

fn apps() -> [App; 2] {
    let new = |name, build: fn(MemoryStore) -> Router| {
        let store = memory(&ManualClock::new());
        App { name, router: build(store.clone()), store }
    };
    [new("router", example::by_router), new("builder", example::by_builder)]
}

fn report() -> Builder {
    Request::get("/api/report").header("authorization", "Bearer ada")
}

fn login() -> Builder {
    Request::post("/api/login")
}

async fn send(router: &Router, request: Builder, body: impl Into<Body>) -> Answer {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 4_711)));
    let request = request.header("origin", ORIGIN).extension(peer).body(body.into()).expect("a request");
    let (parts, body) = router.clone().oneshot(request).await.expect("it does not fail").into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

impl App {
    async fn send(&self, request: Builder) -> Answer {
        send(&self.router, request, Body::empty()).await
    }

    /// What is left of a policy for the client.
    fn left(&self, (policy, kind, quota): (&str, &str, Quota)) -> u64 {
        let key = Key::new(kind, if kind == "ip" { "192.0.2.7" } else { "ada" });
        let limiter = Limiter::new(self.store.clone(), [Rule::new(policy, quota)]);
        rig::left(&limiter, &key)[0]
    }

    /// Sends reports until the address has none left.
    async fn exhaust(&self) {
        while self.left(ADDRESS) > 0 {
            self.send(report()).await;
        }
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    /// Whether a script of another origin may read the response, and each header of limits that it has.
    #[track_caller]
    fn is_readable(&self, name: &str) {
        assert_eq!(self.header("access-control-allow-origin"), Some("*"), "{name}");
        let exposed = self.header("access-control-expose-headers").expect("some are exposed");
        let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
        let all = exposed_headers();
        let sent = all.iter().filter(|header| self.headers.contains_key(*header));
        let sent: Vec<&str> = sent.map(http::HeaderName::as_str).collect();
        assert!(sent.contains(&"ratelimit") && sent.contains(&"ratelimit-policy"), "{name}: {sent:?}");
        assert!(sent.iter().all(|header| exposed.contains(header)), "{name}: {sent:?} {exposed:?}");
    }
}

#[tokio::test]
async fn a_preflight_is_answered_by_cors_and_takes_nothing() {
    for app in apps() {
        let preflight = Request::options("/api/report")
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization");
        let answer = app.send(preflight).await;
        assert_eq!(answer.header("access-control-allow-headers"), Some("authorization"), "{}", app.name);
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("*")), "{}", app.name);
        assert!(!answer.headers.contains_key("ratelimit"), "{}: it is not limited", app.name);
        assert_eq!((app.left(ADDRESS), app.left(USER)), (30, 20), "{}", app.name);
    }
}

#[tokio::test]
async fn a_script_reads_the_limits_of_a_200_and_of_a_429() {
    for app in apps() {
        let served = app.send(report()).await;
        assert_eq!(served.status, 200, "{}", app.name);
        served.is_readable(app.name);
        app.exhaust().await;
        let refused = app.send(report()).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("2")), "{}", app.name);
        refused.is_readable(app.name);
    }
}

#[tokio::test]
async fn a_429_is_traced_compressed_and_keeps_its_wait() {
    for app in apps() {
        app.exhaust().await;
        let log = Log::default();
        let noting = log.note(Level::DEBUG);
        let refused = app.send(report().header("accept-encoding", "gzip")).await;
        drop(noting);
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("2")), "{}", app.name);
        assert_eq!(refused.header("content-encoding"), Some("gzip"), "{}", app.name);
        assert_eq!(refused.body[..2], [0x1f, 0x8b], "{}: it is gzip", app.name);
        let traced = log.lines("finished processing request");
        assert!(traced.len() == 1 && traced[0].contains("status=429"), "{}: {}", app.name, log.text());
        let plain = app.send(report()).await;
        assert_eq!(plain.header("content-encoding"), None, "{}", app.name);
        assert!(plain.body.starts_with(b"{\"type\":"), "{}: {:?}", app.name, plain.body);
    }
}

#[tokio::test]
async fn the_address_is_counted_before_authentication_and_the_user_after() {
    for app in apps() {
        assert_eq!(app.send(Request::get("/api/report")).await.status, 401, "{}", app.name);
        assert_eq!((app.left(ADDRESS), app.left(USER)), (29, 20), "{}: a 401", app.name);
        assert_eq!(app.send(report()).await.status, 200, "{}", app.name);
        assert_eq!((app.left(ADDRESS), app.left(USER)), (28, 19), "{}: a report", app.name);
        for _ in 0..19 {
            app.send(report()).await;
        }
        let refused = app.send(report()).await;
        assert_eq!(refused.status, 429, "{}: the user has used up the limit, and the address has not", app.name);
        assert!(String::from_utf8_lossy(&refused.body).contains(r#""violated-policies":["user"]"#), "{}", app.name);
        assert_eq!(app.left(ADDRESS), 8, "{}", app.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_response_that_counts() {
    for app in apps() {
        let left = |answer: &Answer| answer.header("ratelimit").expect("it is limited").to_owned();
        let welcome = send(&app.router, login(), "correct horse").await;
        assert_eq!((welcome.status, left(&welcome).contains(r#""login";r=5"#)), (200, true), "{}", app.name);
        // The handler waits for a body that never comes.
        let late = send(&app.router, login(), Body::from_stream(stream::pending::<Result<Bytes, String>>())).await;
        assert_eq!((late.status, left(&late).contains(r#""login";r=4"#)), (408, true), "{}", app.name);
        let welcome = send(&app.router, login(), "correct horse").await;
        assert_eq!((welcome.status, left(&welcome).contains(r#""login";r=4"#)), (200, true), "{}", app.name);
        welcome.is_readable(app.name);
    }
}

/// The statuses of so many logins with a wrong password.
async fn wrong_logins(router: &Router, number: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..number {
        statuses.push(send(router, login(), "hunter2").await.status);
    }
    statuses
}

#[tokio::test]
async fn a_route_of_a_nested_router_is_limited_by_its_whole_template() {
    for app in apps() {
        assert_eq!(wrong_logins(&app.router, 7).await, [401, 401, 401, 401, 401, 429, 429], "{}", app.name);
        assert_eq!(app.send(report()).await.status, 200, "{}: another route", app.name);
    }
}

#[tokio::test]
async fn around_the_router_no_route_is_known() {
    let router = example::around(memory(&ManualClock::new()));
    assert_eq!(wrong_logins(&router, 7).await, [401; 7], "the policy of the route never applies");
    let answer = send(&router, login(), "hunter2").await;
    assert_eq!(
        answer.header("ratelimit").map(|limits| limits.contains("login")),
        Some(false),
        "only the address counts"
    );
}

#[tokio::test]
async fn cors_inside_hides_a_429_from_scripts() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), Policy::new("all", Quota::per_minute(1)));
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(exposed_headers());
    let router = Router::new().route("/api/report", get(async || "a report\n")).layer(cors).layer(layer);
    let served = send(&router, report(), Body::empty()).await;
    assert_eq!((served.status, served.header("access-control-allow-origin")), (200, Some("*")));
    let refused = send(&router, report(), Body::empty()).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (429, None));
}

/// Routes between a limiter and one other layer, on either side of it.
fn between<M, L>(limiter: M, other: L, is_inside: bool) -> Router
where
    M: Layer<Route> + Clone + Send + Sync + 'static,
    M::Service: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    <M::Service as Service<Request<Body>>>::Response: IntoResponse,
    <M::Service as Service<Request<Body>>>::Future: Send,
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Response: IntoResponse,
    <L::Service as Service<Request<Body>>>::Future: Send,
{
    let zeros = Bytes::from(vec![0; 100_000]);
    let routes = Router::new().route("/zeros", get(async move || zeros)).route("/late", get(pending::<()>));
    if is_inside { routes.layer(other).layer(limiter) } else { routes.layer(limiter).layer(other) }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_does_not_cut_the_wait_in_a_queue_and_outside_hides_what_is_late() {
    let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(10));
    for (is_inside, queued, is_limited, left) in [(true, 200, true, 5), (false, 408, false, 4)] {
        let clock = ManualClock::paused();
        let bucket = Policy::new("queue", Quota::leaky_bucket(3, Duration::from_secs(60)).queue(1));
        let router = between(RateLimitLayer::new(memory(&clock), bucket), timeout, is_inside);
        let zeros = async || send(&router, Request::get("/zeros"), Body::empty()).await.status;
        assert_eq!((zeros().await, zeros().await), (200, queued), "the second waits for 20 s");

        let (store, quota) = (memory(&clock), Quota::fixed_window(5, Duration::from_secs(86_400)));
        let successes = Policy::new("successes", quota).count(Count::successes());
        let router = between(RateLimitLayer::new(store.clone(), successes), timeout, is_inside);
        let late = send(&router, Request::get("/late"), Body::empty()).await;
        assert_eq!((late.status, late.headers.contains_key("ratelimit")), (408, is_limited));
        let limiter = Limiter::new(store, [Rule::new("successes", quota)]);
        assert_eq!(rig::left(&limiter, &everybody()), [left], "a failure is refunded where the limiter sees it");
    }
}

#[tokio::test]
async fn the_bytes_that_are_sent_are_counted_where_compression_is_inside() {
    for (is_inside, counted) in [(true, 1..2_000), (false, 100_000..100_001)] {
        let (store, quota) = (memory(&ManualClock::new()), Quota::per_hour(1_000_000));
        let limits = RateLimitLayer::new(store.clone(), Policy::new("bytes", quota));
        let bytes = BandwidthLayer::responses(limits, OnLimit::Abort);
        let router = between(bytes, CompressionLayer::new(), is_inside);
        let answer = send(&router, Request::get("/zeros").header("accept-encoding", "gzip"), Body::empty()).await;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        let limiter = Limiter::new(store, [Rule::new("bytes", quota)]);
        let taken = 1_000_000 - rig::left(&limiter, &everybody())[0];
        assert!(counted.contains(&taken), "{taken} bytes are counted of {} that were sent", answer.body.len());
    }
}

#[tokio::test]
async fn a_setting_switches_the_limits_off() {
    for (limits, is_limited) in [("", true), ("off", false)] {
        let router = example::by_setting(memory(&ManualClock::new()), limits);
        for sent in 1..=31 {
            let answer = send(&router, report(), Body::empty()).await;
            assert_eq!(answer.status, if is_limited && sent > 30 { 429 } else { 200 }, "{limits:?} {sent}");
            assert_eq!(answer.headers.contains_key("ratelimit"), is_limited, "{limits:?}");
        }
    }
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let (page, source) = (include_str!("../../docs/order.md"), include_str!("../../examples/services/order/app.rs"));
    let shown: Vec<&str> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown.len(), 4);
    for code in shown {
        assert!(source.contains(code), "the example does not contain\n{code}");
    }
}
