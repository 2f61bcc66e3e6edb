//! What the README promises of policies beside each other, and what its pages may publish.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::routing::get;
use fastrand::Rng;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{Text, layer, left, request, text, with};

const HOUR: Duration = Duration::from_secs(3_600);

/// A policy of each kind that accounts for something else.
fn policies() -> Vec<Policy> {
    let of = |name, limit| Policy::new(name, Quota::fixed_window(limit, HOUR)).key(key::peer_ip());
    let tier = Quota::fixed_window(2_000_000, HOUR);
    vec![
        of("plain", 1_000_000),
        of("cost", 1_000_000).cost(10),
        of("metered", 1_000_000).cost(10).metered(),
        of("failures", 1_000_000).count(Count::failures()),
        of("successes", 1_000_000).count(Count::successes()),
        of("bans", 1_000_000).ban_failures(Ban::new(100_000, HOUR, HOUR), Count::failures()),
        of("tier", 1_000_000).tier(move |parts| parts.headers.contains_key("x-plan").then_some(tier)),
        of("shadow", 10).shadow(),
        of("dropped", 1_000_000).refund_dropped(),
        Policy::new("slots", Quota::concurrency(1_000)).key(key::peer_ip()),
    ]
}

/// What becomes of the response to a request, unless that is dropped before it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Read,
    Unread,
    Held,
    Dropped,
}

#[test]
fn the_readme_names_how_to_run_the_server_and_the_tests() {
    let readme = include_str!("../../README.md");
    for command in ["\ncargo run --example server ", "\nscripts/test "] {
        assert!(readme.contains(command), "{command}");
    }
}

#[test]
fn policies_in_one_layer_account_for_each_request_as_each_of_them_does_alone() {
    let client = Key::new("ip", "10.0.0.1");
    for seed in 0..4 {
        let (mut random, mut held) = (Rng::with_seed(seed), Vec::new());
        let joint = layer(policies());
        let alone: Vec<_> = policies().into_iter().map(|policy| layer([policy])).collect();
        for number in 0..300 {
            let status = random
                .choice([StatusCode::OK, StatusCode::OK, StatusCode::UNAUTHORIZED, StatusCode::BAD_GATEWAY])
                .expect("one");
            let cost = random.bool().then(|| random.u64(0..40));
            let end = random.choice([End::Read, End::Unread, End::Held, End::Dropped]).expect("one");
            let request = if random.bool() { with(request(), "x-plan", "pro") } else { request() };
            for layer in [&joint].into_iter().chain(&alone) {
                let service = layer.layer(service_fn(async |_: Request<String>| {
                    if end == End::Dropped {
                        return pending().await;
                    }
                    let mut response =
                        Response::builder().status(status).body(Text::from("hello")).expect("a response");
                    cost.map(|cost| response.extensions_mut().insert(ActualCost(cost)));
                    Ok::<_, Infallible>(response)
                }));
                let response = service.oneshot(request.clone()).now_or_never();
                let response = response.map(|response| response.expect("it does not fail"));
                assert_eq!(
                    response.as_ref().map(Response::status),
                    (end != End::Dropped).then_some(status),
                    "{number}"
                );
                match end {
                    End::Read => assert_eq!(response.map(text).as_deref(), Some("hello")),
                    End::Held => held.extend(response),
                    End::Unread | End::Dropped => {}
                }
            }
            if random.u8(0..8) == 0 {
                held.clear();
            }
            let left = |layer: &RateLimitLayer| left(&layer.clone().live().limiter(), &client);
            let apart: Vec<_> = alone.iter().flat_map(left).collect();
            assert_eq!(left(&joint), apart, "seed {seed}, request {number}: {status} {cost:?} {end:?}");
        }
    }
}

/// The responses on the page but for their dates, and those of a layer with its policy.
#[tokio::test(start_paused = true)]
async fn the_responses_in_the_readme_are_those_of_its_server() {
    let (_, page) = include_str!("../../README.md").split_once("```text\nHTTP/1.1 200 OK").expect("a response");
    let (page, _) = page.split_once("\n```").expect("its end");
    let (first, last) = page.split_once("\n\nHTTP/1.1 429 Too Many Requests").expect("a denial");
    let policy = Policy::new("api", Quota::per_minute(10)).key(key::client_ip());
    let app = Router::new().route("/", get(async || "hello\n"));
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let service = app.layer(RateLimitLayer::new(store, policy));
    for (number, expected) in (0..11).map(|number| (number, if number == 0 { first } else { last })) {
        let response = service.clone().oneshot(request()).await.expect("a response");
        assert_eq!(response.status(), if number < 10 { 200 } else { 429 });
        if number % 10 == 0 {
            let varies = |name: &str| name == "x-ratelimit-reset" || name == "date";
            let mut told: Vec<_> = response.headers().iter().filter(|(name, _)| !varies(name.as_str())).collect();
            told.sort_by_key(|(name, _)| expected.find(&format!("\n{name}: ")));
            let lines = told.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")));
            let (head, body) = expected.trim().split_once("\n\n").expect("a body");
            let shown = head.lines().filter(|line| !varies(line.split(':').next().unwrap_or_default()));
            assert_eq!(lines.collect::<Vec<_>>(), shown.collect::<Vec<_>>());
            let sent = to_bytes(response.into_body(), 1_000).await.expect("a body");
            assert_eq!(String::from_utf8_lossy(&sent).trim_end(), body);
        }
    }
}

#[test]
fn no_page_publishes_a_row_that_was_measured_while_the_machine_was_busy() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).expect("the pages") {
        let path = entry.expect("a page").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read(&path).expect("its text");
        assert!(!String::from_utf8_lossy(&text).contains("times not judged"), "{}", path.display());
    }
}
