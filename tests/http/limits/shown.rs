//! Whom the status service shows what, and that no client can break it.
#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tollgate::key::{KeyExtractor, Lookup};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::status::StatusService;
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
#[cfg(feature = "config")]
use tollgate_config::Config;
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::support::log::Log;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).policies(policies)
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("by", TEN).key(key)
}

fn request(headers: &[(&str, &str)]) -> Request<Body> {
    let peer = ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711)));
    let request = Request::builder().uri("/rate_limit").extension(peer);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

/// The status and the text of what a service answers.
#[track_caller]
fn asked(service: StatusService, request: Request<Body>) -> (u16, String) {
    let response = service.oneshot(request).now_or_never().expect("an answer at once").expect("a response");
    let status = response.status().as_u16();
    let body = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    (status, String::from_utf8(body.to_bytes().into()).expect("text"))
}

/// What is told to anybody whom a closure lets see all.
#[track_caller]
fn told(layer: &RateLimitLayer, headers: &[(&str, &str)]) -> String {
    let (status, text) = asked(layer.clone().live().status_service_for(|_| true), request(headers));
    assert_eq!(status, 200, "{text}");
    text
}

/// The response to a request that is limited.
#[track_caller]
fn served(layer: &RateLimitLayer, request: Request<Body>) -> Response<()> {
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default())) });
    let response = layer.layer(inner).oneshot(request).now_or_never().expect("an answer at once");
    response.expect("a response").map(drop)
}

#[test]
fn a_status_for_all_is_not_built_where_clients_can_make_up_a_key() {
    let dynamic: Arc<dyn KeyExtractor> = Arc::new(key::header("x-user"));
    let found = key::lookup(key::peer_ip(), |_: Lookup| async { Ok::<_, Infallible>(Key::new("k", "v")) });
    let policies = [
        by(key::header("x-user")),
        by(key::cookie("session")),
        by(key::query("tenant")),
        by(key::bearer()),
        by(key::basic_user()),
        by(key::host()),
        by(key::path()),
        by(key::path_param("id")),
        by(key::from_fn(|_: &Parts| "text")),
        by(|_: &Parts| "text"),
        by((key::peer_ip(), key::header("x-user"))),
        by((key::header("x-user"), key::peer_ip())),
        by(dynamic),
        by(found),
        // What a tier is, a client would find out with an API key that is a guess.
        by(key::peer_ip()).tier(|parts| (parts.headers.get("x-api-key")? == "secret").then(|| Quota::per_hour(5_000))),
    ];
    for (place, policy) in policies.into_iter().enumerate() {
        let error = layer([Policy::new("all", TEN), policy]).live().status_service().expect_err("anybody could see it");
        assert!(error.is_invalid(), "policy {place}: {error}");
        let told = error.to_string();
        assert!(told.contains("policy \"by\"") && told.contains("status_service_for"), "policy {place}: {told}");
    }
}

#[derive(Clone)]
struct User(&'static str);

#[test]
fn a_status_for_all_is_built_for_keys_that_the_connection_or_the_server_says() {
    let dynamic: Arc<dyn KeyExtractor> = Arc::new(key::client_ip());
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let policies = [
        by(key::peer_ip()),
        by(key::client_ip().trusted_hops(1)),
        by(key::global()),
        by(key::route()),
        by(key::method()),
        by(key::extension(|user: &User| Key::new("user", user.0))),
        by((key::peer_ip(), key::route())),
        by(dynamic),
        by(key::peer_ip()).tier_lookup(tiers),
        // Nobody is told of them.
        by(key::header("x-user")).unadvertised(),
        by(key::header("x-user")).shadow(),
    ];
    for (place, policy) in policies.into_iter().enumerate() {
        let _ = layer([policy]).live().status_service().unwrap_or_else(|error| panic!("policy {place}: {error}"));
    }
}

#[test]
fn a_client_is_shown_its_own_by_its_connection_and_by_what_earlier_layers_found() {
    let user = Policy::new("user", TEN).key(key::extension(|user: &User| Key::new("user", user.0)));
    let layer = layer([by(key::peer_ip()), user]);
    let status = layer.clone().live().status_service().expect("all of it is proven");
    let of = |user: &'static str| {
        let mut request = request(&[("x-user", "victim"), ("authorization", "Basic dmljdGltOg==")]);
        request.extensions_mut().insert(User(user));
        request
    };
    served(&layer, of("ada"));
    let (_, ada) = asked(status.clone(), of("ada"));
    assert!(ada.contains(r#""by":{"limit":10,"used":1"#) && ada.contains(r#""user":{"limit":10,"used":1"#), "{ada}");
    let (_, bob) = asked(status, of("bob"));
    assert!(bob.contains(r#""by":{"limit":10,"used":1"#) && bob.contains(r#""user":{"limit":10,"used":0"#), "{bob}");
}

#[test]
fn nobody_is_shown_the_counters_of_a_user_whose_name_it_writes() {
    let layer = layer([by(key::basic_user())]);
    let status = layer.clone().live().status_service_for(|parts| parts.extensions.get::<User>().is_some());
    let victim = || request(&[("authorization", "Basic dmljdGltOg==")]);
    let (code, text) = asked(status.clone(), victim());
    assert_eq!(code, 403);
    assert!(text.contains(r#""status":403"#) && !text.contains("by"), "{text}");
    let mut request = victim();
    request.extensions_mut().insert(User("victim"));
    assert!(asked(status, request).1.contains(r#""by":{"limit":10,"used":0"#));
}

#[test]
fn replaced_policies_that_may_not_be_shown_to_all_are_left_out_with_one_warning() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let user = |name| Policy::new(name, TEN).key(key::header("x-user"));
    let replaced = || [by(key::peer_ip()), user("user"), user("hidden").unadvertised()];

    let other = layer([by(key::peer_ip())]);
    other.clone().live().replace_policies(replaced()).expect("they are valid");
    let layer = layer([by(key::peer_ip())]);
    let status = layer.clone().live().status_service().expect("addresses are proven");
    layer.clone().live().replace_policies([by(key::peer_ip())]).expect("they are valid");
    assert_eq!(log.count("status_left_out"), 0);

    layer.clone().live().replace_policies(replaced()).expect("they are valid");
    for _ in 0..10 {
        let (code, text) = asked(status.clone(), request(&[("x-user", "victim")]));
        assert_eq!(code, 200);
        assert!(text.contains(r#""by""#) && !text.contains(r#""user""#), "{text}");
    }
    assert_eq!(log.count("status_left_out"), 1);
    assert_eq!(log.count(r#"["user"]"#), 1);
}

#[test]
fn a_policy_that_does_not_apply_by_its_closure_is_left_out() {
    let premium = |parts: &Parts| parts.headers.contains_key("x-premium");
    let layer = layer([Policy::new("premium", TEN).when(premium), Policy::new("all", TEN)]);
    assert!(!told(&layer, &[]).contains("premium"));
    assert!(told(&layer, &[("x-premium", "1")]).contains(r#""premium":{"limit":10,"used":0"#));
}

fn units(parts: &Parts) -> u64 {
    let units = parts.headers.get("x-units").and_then(|units| units.to_str().ok()).and_then(|units| units.parse().ok());
    units.expect("the policy applies to requests with units")
}

#[test]
fn a_cost_that_relies_on_where_its_policy_applies_is_not_worked_out() {
    let has_units = |parts: &Parts| parts.headers.contains_key("x-units");
    let policy = |name| Policy::new(name, TEN).cost_by(units);
    let layer = layer([
        policy("when").when(has_units),
        policy("routes").routes(["/units"]).methods([Method::POST]),
        policy("anywhere"),
    ]);
    let text = told(&layer, &[]);
    assert!(!text.contains("when") && text.contains("routes") && text.contains("anywhere"), "{text}");
    // What a client writes is no cost either: it is only looked.
    let text = told(&layer, &[("x-units", "none")]);
    assert!(text.contains(r#""when":{"limit":10,"used":0,"remaining":10"#), "{text}");
}

#[test]
fn a_client_whom_the_layer_denies_is_shown_nothing() {
    let list = || AccessList::parse(["10.0.0.1", "2001:db8::/32"]).expect("addresses");
    let all = || Policy::new("all", TEN);
    for denying in [all().deny(list()), all().deny(list()).unadvertised()] {
        let layer = layer([Policy::new("other", TEN), denying]);
        let (code, text) = asked(layer.clone().live().status_service().expect("it is proven"), request(&[]));
        assert!(code == 403 && !text.contains("limit\""), "{code} {text}");
        assert_eq!(served(&layer, request(&[])).status(), 403);
    }
    // What is denied elsewhere is not denied here, and what never refuses denies nobody.
    let layer = layer([
        Policy::new("writes", TEN).deny(list()).methods([Method::POST]),
        Policy::new("shadow", TEN).deny(list()).shadow(),
        all(),
    ]);
    assert_eq!(asked(layer.clone().live().status_service().expect("it is proven"), request(&[])).0, 200);
}

#[test]
fn a_request_without_a_key_that_must_be_there_is_answered_as_by_the_layer() {
    let layer = layer([by(key::header("x-user")).missing_key(MissingKey::Deny)]);
    let (code, text) = asked(layer.clone().live().status_service_for(|_| true), request(&[]));
    let refused = served(&layer, request(&[]));
    assert_eq!((code, refused.status().as_u16()), (403, 403), "{text}");
    assert_eq!(asked(layer.clone().live().status_service_for(|_| true), request(&[("x-user", "ada")])).0, 200);
}

#[test]
fn what_is_told_is_what_the_headers_told_with_a_reserve_too() {
    let is_critical = |parts: &Parts| parts.headers.contains_key("x-critical");
    let quotas = [
        TEN,
        Quota::token_bucket(10, HOUR),
        Quota::token_bucket(10, HOUR).burst(4),
        Quota::sliding_window(10, HOUR),
        Quota::sliding_log(10, HOUR),
        // Headers have 15 digits at most.
        Quota::token_bucket(2_000_000_000_000_000, Duration::from_micros(1)),
    ];
    for quota in quotas {
        for fraction in [None, Some(0.3), Some(0.7)] {
            let policy = Policy::new("user", quota).key(key::header("x-user"));
            let policy = fraction.into_iter().fold(policy, |policy, fraction| policy.reserve(fraction, is_critical));
            let layer = layer([policy]).headers(RateLimitHeaders::both().used());
            for headers in [&[("x-user", "ada")][..], &[("x-user", "ada"), ("x-critical", "1")]] {
                for _ in 0..4 {
                    let response = served(&layer, request(headers));
                    let header = |name: &str| response.headers()[name].to_str().expect("a number").to_owned();
                    let [limit, used, left] =
                        ["limit", "used", "remaining"].map(|name| header(&format!("x-ratelimit-{name}")));
                    let expected = format!(r#""limit":{limit},"used":{used},"remaining":{left},"#);
                    let text = told(&layer, headers);
                    assert!(text.contains(&expected), "{quota}, reserve {fraction:?}: {text} is not {expected}");
                }
            }
        }
    }
}

#[test]
fn telling_takes_no_unit_makes_no_key_and_prolongs_none() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().capacity(200).clock(clock.clone()).build();
    let store = RecordingStore::new(memory.clone());
    let policy = by(key::header("x-user")).cost(3).metered().refund_dropped().reserve(0.5, |_| false);
    let layer = RateLimitLayer::new(store.clone(), policy);
    for number in 0..100 {
        told(&layer, &[("x-user", &number.to_string())]);
    }
    assert!(memory.is_empty());
    let calls = store.take();
    assert_eq!(calls.len(), 100, "each is a look");
    for look in calls {
        let Recorded::Decide(checks) = look else { panic!("{look:?}") };
        assert_eq!((checks.len(), checks[0].cost), (1, 0));
    }

    served(&layer, request(&[("x-user", "ada")]));
    clock.advance(HOUR / 2);
    (0..10).for_each(|_| assert!(told(&layer, &[("x-user", "ada")]).contains(r#""used":8,"remaining":2"#)));
    // When its window is over, it makes way.
    clock.advance(HOUR);
    (0..64).for_each(|number| drop(served(&layer, request(&[("x-user", &number.to_string())]))));
    assert_eq!(memory.len(), 64);
    assert!(told(&layer, &[("x-user", "ada")]).contains(r#""used":5,"remaining":5"#));
}

#[cfg(feature = "config")]
#[test]
fn a_list_of_clients_in_a_file_makes_no_address_a_guess() {
    let file = |key: &str| {
        let policy = format!("[[policy]]\nname = \"by\"\nlimit = 10\nwindow = \"1h\"\nkey = \"{key}\"");
        let config = Config::from_toml(&format!("{policy}\ndeny = [\"203.0.113.0/24\"]")).expect("a policy");
        layer(config.into_policies()).live().status_service().is_ok()
    };
    assert!(file("client_ip") && file("global") && !file("header:x-api-key"));
}

#[test]
fn a_head_request_for_the_status_has_no_body_but_its_length() {
    let layer = layer([Policy::new("all", TEN)]);
    for service in [
        layer.clone().live().status_service().expect("it is proven"),
        layer.clone().live().status_service_for(|_| false),
    ] {
        let (_, text) = asked(service.clone(), request(&[]));
        let mut head = request(&[]);
        *head.method_mut() = Method::HEAD;
        let response = service.oneshot(head).now_or_never().expect("an answer at once").expect("a response");
        let length = response.headers().get("content-length").expect("it is told").to_str().expect("digits").parse();
        assert_eq!((length, response.into_body().size_hint().exact()), (Ok(text.len()), Some(0)));
    }
}
