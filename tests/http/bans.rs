//! What clients of a banned key receive: the response, headers, gRPC's terms, and the status document.
#![cfg(feature = "axum")]

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};
use tower::ServiceExt;

use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);
const QUOTA: Quota = Quota::fixed_window(1, MINUTE);

fn policy() -> Policy {
    Policy::new("login", QUOTA).key(key::peer_ip()).ban(Ban::new(2, MINUTE, 10 * MINUTE))
}

fn request() -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
    request
}

fn call() -> Request<String> {
    let mut call = request();
    (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
    call.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
    call.headers_mut().insert("te", "trailers".parse().expect("a value"));
    call
}

fn text(sent: &TestResponse) -> &str {
    std::str::from_utf8(sent.body()).expect("text")
}

/// One that is admitted, one that is refused by the quota, and two by the ban.
async fn four(layer: &RateLimitLayer, request: fn() -> Request<String>) -> Vec<TestResponse> {
    send(layer, 4, |_| request()).await
}

#[tokio::test]
async fn a_ban_has_a_problem_type_of_its_own_and_its_end_in_every_header() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), policy());
    let sent = four(&layer, request).await;
    let quota = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","#;
    assert!(text(&sent[1]).starts_with(quota), "{}", text(&sent[1]));
    for banned in &sent[2..] {
        let expected = concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
            r#""title":"Abnormal Usage Detected","status":429,"detail":"Retry in 600 seconds.","#,
            r#""violated-policies":["login"]}"#,
        );
        assert_eq!((banned.status(), text(banned)), (StatusCode::TOO_MANY_REQUESTS, expected));
        let header = |name: &str| banned.headers()[name].to_str().expect("ASCII");
        assert_eq!((header("retry-after"), header("ratelimit")), ("600", "\"login\";r=0;t=600"));
        assert_eq!(header("ratelimit-policy"), "\"login\";q=1;w=60");
    }
    clock.advance(Duration::from_millis(599_999));
    assert!(!send(&layer, 1, |_| request()).await[0].is_admitted());
    clock.advance(Duration::from_millis(1));
    assert!(send(&layer, 1, |_| request()).await[0].is_admitted());
}

#[tokio::test]
async fn an_unadvertised_ban_names_no_policy() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy().unadvertised());
    let banned = &four(&layer, request).await[2];
    assert!(text(banned).contains("#abnormal-usage-detected") && text(banned).ends_with(r#""violated-policies":[]}"#));
    assert!(!banned.headers().contains_key("ratelimit-policy"));
}

#[tokio::test]
async fn the_message_of_a_banned_grpc_call_is_that_of_a_ban() {
    let sent = four(&RateLimitLayer::new(memory(&ManualClock::new()), policy()), call).await;
    let header = |sent: &TestResponse, name: &str| sent.headers()[name].to_str().expect("ASCII").to_owned();
    assert_eq!(header(&sent[1], "grpc-message"), "rate limit exceeded");
    for banned in &sent[2..] {
        assert_eq!(
            (header(banned, "grpc-status"), header(banned, "grpc-message")),
            ("8".into(), "banned for a time".into())
        );
        assert_eq!(header(banned, "grpc-retry-pushback-ms"), "600000");
    }
}

#[tokio::test]
async fn the_status_of_a_banned_client_has_the_end_of_its_ban() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy());
    let status = async || {
        let service = layer.clone().live().status_service().expect("an address is proven");
        let body = service.oneshot(request().map(|_| Full::<Bytes>::default())).await.expect("a response").into_body();
        String::from_utf8(body.collect().await.expect("a body").to_bytes().into()).expect("text")
    };
    assert!(!status().await.contains("banned"));
    let _ = four(&layer, request).await;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let before = now();
    let status = status().await;
    let after = now();
    let (_, banned) = status.split_once(r#","banned":"#).unwrap_or_else(|| panic!("{status}"));
    let until: u64 = banned.trim_end_matches('}').parse().expect("a time");
    assert!((before + 590..=after + 602).contains(&until), "{status}");
    assert!(status.contains(r#""remaining":0"#), "{status}");
}

#[tokio::test]
async fn in_shadow_mode_no_client_learns_of_a_ban() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy().shadow());
    for sent in four(&layer, request).await {
        assert!(sent.is_admitted());
        let mut names = sent.headers().keys().map(http::HeaderName::as_str);
        assert!(!names.any(|name| name == "retry-after" || name.contains("ratelimit")), "{:?}", sent.headers());
    }
}

#[tokio::test]
async fn a_ban_outlives_the_policy_that_is_replaced_by_one_with_another_limit() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy());
    let _ = four(&layer, request).await;
    let other = Policy::new("login", Quota::token_bucket(100, MINUTE)).key(key::peer_ip());
    layer
        .clone()
        .live()
        .replace_policies([other.clone().ban(Ban::new(50, MINUTE, 10 * MINUTE))])
        .expect("it is supported");
    assert!(!send(&layer, 1, |_| request()).await[0].is_admitted());
    layer.clone().live().replace_policies([other]).expect("it is supported");
    assert!(send(&layer, 1, |_| request()).await[0].is_admitted(), "a policy without a ban does not look at it");
}
