//! The service that tells clients what they have left: what it tells, whom it tells what, and that it takes nothing.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{Method, Request};
use http_body::Body as _;
use tollgate::key::{self, KeyExtractor, Lookup};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::status::StatusService;
use tollgate::test_util::ManualClock;
use tollgate::{Key, LiveLayer, MemoryStore, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::Layer;
use tracing::Level;

use crate::rig::{self, expect, hello, layer, line, of, request, send, text, with};
use crate::support::doubles::unavailable;
use crate::support::log::Log;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("by", TEN).key(key)
}

fn user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

/// The status and the text of what a service answers.
#[track_caller]
fn asked(service: &StatusService, request: Request<String>) -> (u16, String) {
    let response = send(service, request);
    (response.status().as_u16(), text(response))
}

/// What is told to anybody whom a closure lets see all.
#[track_caller]
fn told(layer: &LiveLayer, request: Request<String>) -> String {
    let (status, text) = asked(&layer.status_service_for(|_| true), request);
    assert_eq!(status, 200, "{text}");
    text
}

/// Expects what a user is told; `R` stands for a reset that is this far away.
#[track_caller]
fn tells(layer: &LiveLayer, user: &str, expected: &str, resets: &[Duration]) {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let filled = |now: Duration| {
        let seconds = |after: &Duration| (now + *after).as_nanos().div_ceil(1_000_000_000).to_string();
        let expected = resets.iter().fold(expected.to_owned(), |text, after| text.replacen('R', &seconds(after), 1));
        format!(r#"{{"resources":{{{expected}}}}}"#)
    };
    let before = filled(now());
    let text = told(layer, of(user));
    assert!(text == before || text == filled(now()), "{text} is not {before}");
}

/// The status of a request that is limited.
#[track_caller]
fn limited(layer: &RateLimitLayer, request: Request<String>) -> u16 {
    send(&layer.layer(hello()), request).status().as_u16()
}

#[test]
fn each_client_is_told_what_it_has_left() {
    let layer = layer([user(Quota::token_bucket(10, HOUR)).cost(2)]).ip(Quota::fixed_window(3, HOUR));
    let live = layer.clone().live();
    let fresh =
        r#""user":{"limit":10,"used":0,"remaining":10,"reset":R},"ip":{"limit":3,"used":0,"remaining":3,"reset":R}"#;
    tells(&live, "ada", fresh, &[Duration::ZERO; 2]);
    assert_eq!(limited(&layer, of("ada")), 200);
    let after =
        r#""user":{"limit":10,"used":2,"remaining":8,"reset":R},"ip":{"limit":3,"used":1,"remaining":2,"reset":R}"#;
    tells(&live, "ada", after, &[HOUR / 5, HOUR]);
    let other = after.replace(r#""used":2,"remaining":8"#, r#""used":0,"remaining":10"#);
    tells(&live, "bob", &other, &[Duration::ZERO, HOUR]);
    live.replace_policies([user(Quota::fixed_window(7, HOUR))]).expect("they are valid");
    tells(&live, "bob", r#""user":{"limit":7,"used":0,"remaining":7,"reset":R}"#, &[Duration::ZERO]);
}

#[test]
fn what_is_counted_besides_requests_has_a_name_and_slots_have_no_reset() {
    let by_user = |name, quota| layer([Policy::new(name, quota).key(key::header("x-user"))]);
    let streams = r#""streams":{"limit":1,"used":0,"remaining":1,"unit":"concurrent-requests"}"#;
    tells(&by_user("streams", Quota::concurrency(1)).live(), "ada", streams, &[]);
    let downloads = r#""downloads":{"limit":1000,"used":0,"remaining":1000,"reset":R,"unit":"content-bytes"}"#;
    let bandwidth = BandwidthLayer::responses(by_user("downloads", Quota::per_second(1_000)), OnLimit::Throttle);
    tells(bandwidth.limits(), "ada", downloads, &[Duration::ZERO]);
}

#[test]
fn policies_for_other_requests_are_told_too_and_those_that_are_hidden_or_do_not_apply_are_not() {
    let one = |name| Policy::new(name, Quota::fixed_window(1, HOUR)).key(key::header("x-user"));
    let layer = layer([
        one("hidden").unadvertised(),
        one("tried").shadow(),
        one("absent").key(key::cookie("session")),
        one("listed").allow(AccessList::default().key("ada")),
        one("scoped").methods([Method::POST]).routes(["/"]),
        one("never").when(|_| false).cost_by(|_| panic!("a cost is not worked out where its policy does not apply")),
        one("costly").routes(["/units"]).cost_by(|_| panic!("it is only looked")),
    ])
    .live();
    let of_one = |name| format!(r#""{name}":{{"limit":1,"used":0,"remaining":1,"reset":R}}"#);
    let ada = [of_one("scoped"), of_one("costly")];
    tells(&layer, "ada", &ada.join(","), &[Duration::ZERO; 2]);
    tells(&layer, "bob", &[of_one("listed"), ada.join(",")].join(","), &[Duration::ZERO; 3]);
}

#[test]
fn telling_takes_nothing_even_when_nothing_is_left_and_makes_no_key() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().capacity(200).clock(clock.clone()).build();
    let policy = user(TEN).cost(5).metered().refund_dropped();
    let layer = RateLimitLayer::new(memory.clone(), policy);
    let live = layer.clone().live();
    (0..100).for_each(|number| drop(told(&live, of(&number.to_string()))));
    assert!(memory.is_empty());
    for (status, left) in [(200, 5), (200, 0), (429, 0)] {
        assert_eq!(limited(&layer, of("ada")), status);
        (0..10).for_each(|_| assert!(told(&live, of("ada")).contains(&format!(r#""remaining":{left},"#))));
    }
    // When its window is over, it makes way.
    clock.advance(HOUR + HOUR / 2);
    (0..64).for_each(|number| assert_eq!(limited(&layer, of(&number.to_string())), 200));
    assert_eq!(memory.len(), 64);
}

#[test]
fn what_is_told_is_what_the_headers_told_with_a_reserve_too() {
    let is_critical = |parts: &Parts| parts.headers.contains_key("x-critical");
    // Headers have 15 digits at most.
    let large = Quota::token_bucket(2_000_000_000_000_000, Duration::from_micros(1));
    let quotas = [TEN, Quota::token_bucket(10, HOUR).burst(4), Quota::sliding_window(10, HOUR), large];
    for quota in quotas {
        for fraction in [None, Some(0.3), Some(0.7)] {
            let policy = fraction.into_iter().fold(user(quota), |policy, part| policy.reserve(part, is_critical));
            let layer = layer([policy]).headers(RateLimitHeaders::both().used());
            for request in [of("ada"), with(of("ada"), "x-critical", "1")] {
                for _ in 0..4 {
                    let response = send(&layer.layer(hello()), request.clone());
                    let [limit, used, left] = ["limit", "used", "remaining"]
                        .map(|name| line(response.headers(), &format!("x-ratelimit-{name}")).to_owned());
                    let expected = format!(r#""limit":{limit},"used":{used},"remaining":{left},"#);
                    let text = told(&layer.clone().live(), request.clone());
                    assert!(text.contains(&expected), "{quota}, reserve {fraction:?}: {text} is not {expected}");
                }
            }
        }
    }
}

#[test]
fn the_answer_is_json_of_the_moment_and_to_head_its_length() {
    let none = layer([]).live();
    let response = send(&none.status_service_for(|_| true), request());
    assert_eq!(response.status(), 200);
    expect(response.headers(), &[("content-type", "application/json"), ("cache-control", "no-store")]);
    assert_eq!(text(response), r#"{"resources":{}}"#);
    for service in [none.status_service().expect("it is proven"), none.status_service_for(|_| false)] {
        let response = send(&service, rig::by(Method::HEAD));
        let (_, text) = asked(&service, request());
        assert_eq!(line(response.headers(), "content-length"), text.len().to_string());
        assert_eq!(response.into_body().size_hint().exact(), Some(0));
    }
}

#[test]
fn a_store_that_cannot_say_is_503_where_failures_deny_and_a_fallback_tells_what_it_counts() {
    let denies = RateLimitLayer::new(unavailable(), user(TEN)).on_failure(OnFailure::Deny);
    let response = send(&denies.live().status_service_for(|_| true), of("ada"));
    assert_eq!(response.status(), 503);
    expect(response.headers(), &[("retry-after", "1"), ("content-type", "application/problem+json")]);
    assert!(text(response).contains("temporary-reduced-capacity"));
    let falls_back = RateLimitLayer::new(unavailable(), user(Quota::token_bucket(2, HOUR)));
    assert_eq!(limited(&falls_back, of("ada")), 200);
    assert!(told(&falls_back.live(), of("ada")).contains(r#""used":1,"remaining":1"#));
}

#[derive(Clone)]
struct User(&'static str);

fn by_found_user() -> Policy {
    Policy::new("user", TEN).key(key::extension(|user: &User| Key::new("user", user.0)))
}

#[test]
fn a_status_for_all_is_built_only_for_keys_that_the_connection_or_the_server_says() {
    let found = key::lookup(key::peer_ip(), |_: Lookup| async { Ok::<_, Infallible>(Key::new("k", "v")) });
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let list = || AccessList::parse(["203.0.113.0/24"]).expect("a network");
    let status = |policy| layer([Policy::new("all", TEN), policy]).live().status_service();
    let made_up = [
        by(key::header("x-user")),
        by(key::header("x-user")).deny(list()),
        by(key::bearer()),
        by(key::host()),
        by(key::path()),
        by(key::from_fn(|_: &Parts| "text")),
        by((key::peer_ip(), key::header("x-user"))),
        by(found),
        // What a tier is, a client would find out with an API key that is a guess.
        by(key::peer_ip()).tier(|parts| (parts.headers.get("x-api-key")? == "secret").then(|| Quota::per_hour(5_000))),
    ];
    for (place, policy) in made_up.into_iter().enumerate() {
        let told = status(policy).expect_err("anybody could see it").to_string();
        assert!(told.contains("policy \"by\"") && told.contains("status_service_for"), "policy {place}: {told}");
    }
    let proven = [
        by(key::peer_ip()),
        by(key::client_ip().trusted_hops(1)).deny(list()),
        by(key::global()).deny(list()),
        by(key::route()),
        by(key::method()),
        by_found_user(),
        by((key::peer_ip(), key::route())),
        by(key::peer_ip()).tier_lookup(tiers),
        // Nobody is told of them.
        by(key::header("x-user")).unadvertised(),
        by(key::header("x-user")).shadow(),
    ];
    for (place, policy) in proven.into_iter().enumerate() {
        let _ = status(policy).unwrap_or_else(|error| panic!("policy {place}: {error}"));
    }
}

#[test]
fn a_client_is_shown_its_own_by_its_connection_and_by_what_earlier_layers_found_and_not_by_what_it_writes() {
    let layer = layer([by(key::peer_ip()), by_found_user()]);
    let status = layer.clone().live().status_service().expect("all of it is proven");
    let of = |user: &'static str| {
        let mut request = with(of("victim"), "authorization", "Basic dmljdGltOg==");
        request.extensions_mut().insert(User(user));
        request
    };
    limited(&layer, of("ada"));
    for (user, used) in [("ada", 1), ("bob", 0)] {
        let (_, text) = asked(&status, of(user));
        let expected = format!(r#""user":{{"limit":10,"used":{used}"#);
        assert!(text.contains(r#""by":{"limit":10,"used":1"#) && text.contains(&expected), "{text}");
    }
    let named = rig::layer([by(key::basic_user())]).live();
    let status = named.status_service_for(|parts| parts.extensions.get::<User>().is_some());
    let (code, text) = asked(&status, with(request(), "authorization", "Basic dmljdGltOg=="));
    assert!(code == 403 && text.contains(r#""status":403"#) && !text.contains("by"), "{text}");
    assert!(asked(&status, of("ada")).1.contains(r#""by":{"limit":10,"used":0"#));
}

#[test]
fn replaced_policies_that_may_not_be_shown_to_all_are_left_out_with_one_warning() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let by_peer = || by(key::peer_ip());
    let layer = layer([by_peer()]).live();
    let status = layer.status_service().expect("addresses are proven");
    layer.replace_policies([by_peer()]).expect("they are valid");
    assert_eq!(log.text(), "");
    let hidden = Policy::new("hidden", TEN).key(key::header("x-user")).unadvertised();
    layer.replace_policies([by_peer(), user(TEN), hidden]).expect("they are valid");
    for _ in 0..10 {
        let (code, text) = asked(&status, of("victim"));
        assert!(code == 200 && text.contains(r#""by""#) && !text.contains(r#""user""#), "{code} {text}");
    }
    assert_eq!((log.count("status_left_out"), log.count(r#"["user"]"#)), (1, 1));
}

#[test]
fn a_client_whom_the_layer_refuses_for_its_key_is_shown_nothing() {
    let list = || AccessList::parse(["10.0.0.1", "2001:db8::/32"]).expect("addresses");
    let all = || Policy::new("all", TEN);
    let keyless = by(key::header("x-user")).missing_key(MissingKey::Deny);
    for denying in [all().deny(list()), all().deny(list()).unadvertised(), keyless.clone()] {
        let layer = layer([Policy::new("other", TEN), denying]);
        let (code, text) = asked(&layer.clone().live().status_service_for(|_| true), request());
        assert!(code == 403 && !text.contains("limit\""), "{code} {text}");
        assert_eq!(limited(&layer, request()), 403);
    }
    told(&layer([keyless]).live(), of("ada"));
    // What is denied elsewhere is not denied here, and what never refuses denies nobody.
    let elsewhere = Policy::new("writes", TEN).deny(list()).methods([Method::POST]);
    let layer = layer([elsewhere, Policy::new("shadow", TEN).deny(list()).shadow(), all()]).live();
    assert_eq!(asked(&layer.status_service().expect("it is proven"), request()).0, 200);
}
