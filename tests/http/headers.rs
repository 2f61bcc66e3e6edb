//! The text of the header fields and of the problem document, and what becomes of fields that are there already.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::body::ResponseBody;
use tollgate::key;
use tollgate::response::{Denial, Draft, exposed_headers};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::time::memory;

type Text = Full<Bytes>;

const SECOND: Duration = Duration::from_secs(1);

/// A layer on a clock that stands still.
fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(memory(&ManualClock::new())).policies(policies)
}

fn policy(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota)
}

/// An inner service that answers with this status and these fields.
fn upstream(
    status: u16,
    fields: &'static [(&'static str, &'static str)],
) -> impl Service<Request<Text>, Response = Response<Text>, Error = Infallible, Future: Send> + Clone {
    service_fn(move |_: Request<Text>| async move {
        let mut response = Response::new(Text::default());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        for (name, value) in fields {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        Ok(response)
    })
}

#[track_caller]
fn send<S, B>(service: &S) -> Response<B>
where
    S: Service<Request<Text>, Response = Response<B>, Error = Infallible> + Clone,
{
    let request = Request::new(Text::default());
    service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
}

/// The response of a layer over a plain service to the last of some requests.
#[track_caller]
fn nth(count: usize, layer: &RateLimitLayer) -> Response<ResponseBody<Text>> {
    let service = layer.layer(upstream(200, &[]));
    (1..count).for_each(|_| drop(send(&service)));
    send(&service)
}

#[track_caller]
fn through(layer: &RateLimitLayer, status: u16, fields: &'static [(&'static str, &'static str)]) -> HeaderMap {
    send(&layer.layer(upstream(status, fields))).headers().clone()
}

/// The one line of a field; empty if there is none.
#[track_caller]
fn line<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let mut lines = headers.get_all(name).iter().map(|value| value.to_str().expect("ASCII"));
    let line = lines.next().unwrap_or_default();
    assert_eq!(lines.next(), None, "{name} is one line");
    line
}

#[track_caller]
fn expect(headers: &HeaderMap, lines: &[(&str, &str)]) {
    for (name, value) in lines {
        assert_eq!(line(headers, name), *value, "{name}");
    }
}

#[track_caller]
fn number(headers: &HeaderMap, name: &str) -> u64 {
    line(headers, name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
}

#[track_caller]
fn body(response: Response<ResponseBody<Text>>) -> String {
    let collected = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

/// The members of a field: names, and Integer parameters. Panics if it is anything else.
#[track_caller]
fn members(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, u64)>)> {
    let list = Parser::new(line(headers, name)).parse::<List>().unwrap_or_else(|error| panic!("{name}: {error}"));
    let members = list.iter().map(|member| {
        let ListEntry::Item(item) = member else { panic!("{name}: {member:?} is no Item") };
        let BareItem::String(policy) = &item.bare_item else { panic!("{name}: {member:?} is no String") };
        let parameters = item.params.iter().map(|(parameter, value)| match value {
            BareItem::Integer(value) => (parameter.to_string(), i64::from(*value).try_into().expect("no sign")),
            other => panic!("{name}: {other:?} is no Integer"),
        });
        (policy.to_string(), parameters.collect())
    });
    members.collect()
}

// The fields of one layer.

#[test]
fn an_admitted_response_says_what_is_left_of_its_one_policy() {
    let response = nth(1, &layer([policy("default", Quota::per_minute(100))]));
    expect(
        response.headers(),
        &[
            ("ratelimit-policy", "\"default\";q=100;w=60"),
            ("ratelimit", "\"default\";r=99;t=60"),
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "99"),
            ("retry-after", ""),
            ("cache-control", ""),
        ],
    );
}

/// A service whose responses have bodies.
fn streaming() -> impl Service<Request<Text>, Response = Response<Text>, Error = Infallible, Future: Send> + Clone {
    service_fn(async |_: Request<Text>| Ok(Response::new(Text::from("a stream"))))
}

#[test]
fn slots_are_advertised_without_times_as_it_is_not_known_when_they_are_free() {
    let service = layer([policy("streams", Quota::concurrency(1))]).layer(streaming());
    let open = send(&service);
    let rules = "\"streams\";q=1;qu=\"concurrent-requests\"";
    expect(
        open.headers(),
        &[
            ("ratelimit-policy", rules),
            ("ratelimit", "\"streams\";r=0"),
            ("x-ratelimit-limit", "1"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", ""),
        ],
    );
    let refused = send(&service);
    assert_eq!(refused.status(), 429);
    expect(
        refused.headers(),
        &[
            ("ratelimit-policy", rules),
            ("ratelimit", "\"streams\";r=0"),
            ("retry-after", "1"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", ""),
        ],
    );
    let detail = "\"detail\":\"Retry in about 1 second.\",\"violated-policies\":[\"streams\"]}";
    let text = body(refused);
    assert!(text.ends_with(detail), "{text}");
    drop(open);
}

#[test]
fn beside_another_policy_slots_bind_only_where_they_refuse() {
    let policies = [policy("streams", Quota::concurrency(2)), policy("hour", Quota::per_hour(9))];
    let service = layer(policies).layer(streaming());
    let open = [send(&service), send(&service)];
    let left = [("ratelimit", "\"hour\";r=7;t=2800, \"streams\";r=0"), ("x-ratelimit-remaining", "7")];
    expect(open[1].headers(), &left);
    assert!(open[1].headers().contains_key("x-ratelimit-reset"));
    let refused = send(&service);
    expect(
        refused.headers(),
        &[
            ("ratelimit", "\"streams\";r=0"),
            ("retry-after", "1"),
            ("x-ratelimit-reset", ""),
            ("x-ratelimit-limit", "2"),
        ],
    );
}

#[test]
fn slots_that_leave_less_replace_what_an_upstream_says_of_its_reset() {
    let inside = [("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "60")];
    let fields: &'static [_] = Box::leak(Box::new(inside));
    let headers = through(&layer([policy("streams", Quota::concurrency(3))]), 200, fields);
    expect(&headers, &[("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "")]);
}

/// A wide, a wider and a narrow policy.
fn three() -> [Policy; 3] {
    [
        policy("ip", Quota::per_minute(300)),
        policy("user", Quota::per_hour(5_000)),
        policy("search", Quota::per_minute(30)),
    ]
}

#[test]
fn a_refusal_lists_the_violated_policy_and_names_all() {
    let response = nth(31, &layer(three()));
    assert_eq!(response.status(), 429);
    expect(
        response.headers(),
        &[
            ("ratelimit-policy", "\"ip\";q=300;w=60, \"user\";q=5000;w=3600, \"search\";q=30;w=60"),
            ("ratelimit", "\"search\";r=0;t=2"),
            ("retry-after", "2"),
            ("x-ratelimit-limit", "30"),
            ("x-ratelimit-remaining", "0"),
            ("content-type", "application/problem+json"),
            ("cache-control", "no-store"),
        ],
    );
    let document = concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","#,
        r#""status":429,"detail":"Retry in 2 seconds.","violated-policies":["search"]}"#,
    );
    assert_eq!(body(response), document);
}

#[test]
fn an_admitted_response_lists_all_policies_the_binding_one_first() {
    let response = nth(1, &layer(three()));
    let listed = "\"search\";r=29;t=58, \"ip\";r=299;t=60, \"user\";r=4999;t=3600";
    expect(response.headers(), &[("ratelimit", listed), ("x-ratelimit-limit", "30")]);
}

#[test]
fn a_refusal_by_several_policies_lists_them_all_and_waits_for_the_slowest() {
    let policies = [policy("quick", Quota::per_minute(1)), policy("slow", Quota::per_hour(1)), three()[0].clone()];
    let response = nth(2, &layer(policies));
    let listed = "\"slow\";r=0;t=3600, \"quick\";r=0;t=60";
    expect(response.headers(), &[("ratelimit", listed), ("retry-after", "3600"), ("x-ratelimit-limit", "1")]);
    assert!(body(response).ends_with(r#""violated-policies":["quick","slow"]}"#));
}

#[test]
fn a_wait_of_one_second_is_told_in_the_singular() {
    let response = nth(2, &layer([policy("all", Quota::per_second(1))]));
    expect(response.headers(), &[("retry-after", "1")]);
    assert!(body(response).contains("\"Retry in 1 second.\""));
}

#[test]
fn a_fixed_window_is_told_until_its_end() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_millis(15_500));
    let quota = Quota::fixed_window(2, Duration::from_secs(60));
    let layer =
        RateLimitLayer::new(memory(&clock), policy("all", quota)).headers(RateLimitHeaders::both().reset_in_seconds());
    let service = layer.layer(upstream(200, &[]));
    for (left, status) in [("\"all\";r=1;t=45", 200), ("\"all\";r=0;t=45", 200), ("\"all\";r=0;t=45", 429)] {
        let response = send(&service);
        assert_eq!(response.status(), status);
        expect(response.headers(), &[("ratelimit", left), ("x-ratelimit-reset", "45")]);
    }
    expect(send(&service).headers(), &[("retry-after", "45")]);
}

#[test]
fn a_sliding_window_is_told_until_the_current_one_ends() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_millis(15_500));
    let quota = Quota::sliding_window(2, Duration::from_secs(60));
    let service = RateLimitLayer::new(memory(&clock), policy("all", quota)).layer(upstream(200, &[]));
    for left in ["\"all\";r=1;t=45", "\"all\";r=0;t=45", "\"all\";r=0;t=45"] {
        expect(send(&service).headers(), &[("ratelimit", left)]);
    }
}

#[test]
fn a_wait_is_rounded_up_and_never_zero() {
    let clock = ManualClock::new();
    let quota = Quota::token_bucket(1, Duration::from_millis(1_500));
    let service = RateLimitLayer::new(memory(&clock), policy("all", quota)).layer(upstream(200, &[]));
    send(&service);
    for (passed, wait) in [(0, "2"), (499, "2"), (1, "1"), (999, "1")] {
        clock.advance(Duration::from_millis(passed));
        let response = send(&service);
        assert_eq!(response.status(), 429);
        expect(response.headers(), &[("retry-after", wait)]);
    }
    clock.advance(Duration::from_millis(1));
    assert_eq!(send(&service).status(), 200);
}

#[test]
fn windows_of_less_than_a_second_are_told_by_the_second() {
    let response = nth(2, &layer([policy("all", Quota::token_bucket(1, Duration::from_millis(100)))]));
    expect(
        response.headers(),
        &[
            ("ratelimit-policy", "\"all\";q=10;w=1"),
            ("ratelimit", "\"all\";r=0;t=1"),
            ("retry-after", "1"),
            ("x-ratelimit-limit", "10"),
        ],
    );
}

#[test]
fn a_burst_above_the_limit_is_told_as_more_in_a_longer_window() {
    let response = nth(1, &layer([policy("all", Quota::per_second(10).burst(100))]));
    expect(response.headers(), &[("ratelimit-policy", "\"all\";q=100;w=10"), ("ratelimit", "\"all\";r=99;t=10")]);
}

#[test]
fn numbers_have_at_most_fifteen_digits() {
    let quota = Quota::fixed_window(1_000_000_000_000, Duration::from_micros(1));
    let response = nth(1, &layer([policy("all", quota)]));
    let told = [("ratelimit-policy", "\"all\";q=999999999999999;w=1"), ("x-ratelimit-limit", "999999999999999")];
    expect(response.headers(), &told);
    assert_eq!(members(response.headers(), "ratelimit")[0].1[0], ("r".to_owned(), 999_999_999_999));
}

#[test]
fn no_wait_is_told_when_none_can_help() {
    let response = nth(1, &layer([policy("all", Quota::per_minute(5)).cost_by(|_| 6)]));
    assert_eq!(response.status(), 429);
    expect(response.headers(), &[("ratelimit", "\"all\";r=5"), ("retry-after", "")]);
    assert!(body(response).ends_with(r#""violated-policies":["all"]}"#));
}

#[test]
fn a_policy_that_is_not_advertised_is_nowhere() {
    let hidden = || policy("hidden", Quota::per_minute(1)).unadvertised();
    let layer = layer([hidden(), policy("shown", Quota::per_minute(9))]).headers(RateLimitHeaders::both().resource());
    let service = layer.layer(upstream(200, &[]));
    for status in [200, 429] {
        let response = send(&service);
        assert_eq!(response.status(), status);
        expect(response.headers(), &[("ratelimit-policy", "\"shown\";q=9;w=60")]);
        let text = format!("{:?}", response.headers()) + &body(response);
        assert!(!text.contains("hidden"), "{text}");
    }
    let response = send(&service);
    expect(response.headers(), &[("ratelimit", ""), ("x-ratelimit-limit", ""), ("retry-after", "60")]);
    assert!(body(response).ends_with(r#""violated-policies":[]}"#));
}

#[test]
fn a_hidden_policy_that_binds_does_not_hide_what_is_left_of_the_others() {
    let hidden = policy("hidden", Quota::per_minute(2)).unadvertised();
    let policies = [policy("wide", Quota::per_minute(20)), hidden, policy("narrow", Quota::per_minute(10))];
    let response = nth(1, &layer(policies));
    let shown = [("ratelimit", "\"narrow\";r=9;t=54, \"wide\";r=19;t=57"), ("x-ratelimit-limit", "10")];
    expect(response.headers(), &shown);
    expect(response.headers(), &[("x-ratelimit-remaining", "9")]);
}

#[test]
fn only_hidden_policies_leave_no_field() {
    let response = nth(1, &layer([policy("hidden", Quota::per_minute(2)).unadvertised()]));
    assert_eq!(names(response.headers()), [""; 0]);
}

// Sets of fields.

#[test]
fn which_sets_are_sent_is_a_choice() {
    const IETF: [&str; 2] = ["ratelimit", "ratelimit-policy"];
    const LEGACY: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let more = RateLimitHeaders::legacy().used().resource();
    let used = [LEGACY.as_slice(), &["x-ratelimit-resource", "x-ratelimit-used"]].concat();
    let both = [IETF.as_slice(), &LEGACY].concat();
    let table = [
        (RateLimitHeaders::both(), both),
        (RateLimitHeaders::ietf(), IETF.to_vec()),
        (RateLimitHeaders::legacy(), LEGACY.to_vec()),
        (RateLimitHeaders::none(), vec![]),
        (RateLimitHeaders::none().draft(Draft::Draft11), IETF.to_vec()),
        (RateLimitHeaders::ietf().used(), IETF.to_vec()),
        (more, used),
    ];
    for (headers, expected) in table {
        let layer = layer([policy("all", Quota::per_minute(1))]).headers(headers.clone());
        assert_eq!(names(nth(1, &layer).headers()), expected, "{headers:?}");
        let refusal = nth(2, &layer);
        let mut own = ["cache-control", "content-type", "retry-after"].to_vec();
        own.extend(expected);
        own.sort_unstable();
        assert_eq!(names(refusal.headers()), own, "{headers:?}");
    }
}

#[test]
fn both_sets_are_sent_unless_told_otherwise() {
    let response = nth(1, &layer([policy("all", Quota::per_minute(1))]));
    assert_eq!(response.headers().len(), 5);
}

#[test]
fn the_legacy_reset_is_unix_time_rounded_up_or_seconds_from_now() {
    let quota = Quota::token_bucket(2, Duration::from_millis(2_200));
    let in_seconds = layer([policy("all", quota)]).headers(RateLimitHeaders::legacy().reset_in_seconds());
    expect(nth(1, &in_seconds).headers(), &[("x-ratelimit-reset", "2")]);
    expect(nth(1, &in_seconds).headers(), &[("x-ratelimit-reset", "3")]);

    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let rounded_up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let layer = layer([policy("all", Quota::per_hour(1))]).headers(RateLimitHeaders::legacy());
    let before = now();
    let reset = number(nth(1, &layer).headers(), "x-ratelimit-reset");
    let expected = rounded_up(before) + 3_600..=rounded_up(now()) + 3_600;
    assert!(expected.contains(&reset), "{reset} is not in {expected:?}");
}

#[test]
fn used_and_resource_speak_of_the_binding_policy() {
    let policies = [policy("wide", Quota::per_minute(100)), policy("narrow", Quota::per_minute(10))];
    let response = nth(3, &layer(policies).headers(RateLimitHeaders::legacy().used().resource()));
    expect(
        response.headers(),
        &[
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "7"),
            ("x-ratelimit-used", "3"),
            ("x-ratelimit-resource", "narrow"),
        ],
    );
}

#[test]
fn a_burst_below_the_limit_is_not_counted_as_used() {
    let response =
        nth(1, &layer([policy("all", Quota::per_minute(100).burst(10))]).headers(RateLimitHeaders::legacy().used()));
    expect(response.headers(), &[("x-ratelimit-remaining", "9"), ("x-ratelimit-used", "1")]);
}

#[test]
fn what_browsers_must_be_shown_is_all_that_is_sent() {
    let all = exposed_headers();
    let exposed: Vec<&str> = all.iter().map(HeaderName::as_str).collect();
    let listed = "retry-after ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset \
                  x-ratelimit-used x-ratelimit-resource grpc-retry-pushback-ms grpc-status grpc-message";
    assert_eq!(exposed.join(" "), listed);
    let headers = RateLimitHeaders::both().used().resource();
    let refusal = nth(2, &layer([policy("all", Quota::per_minute(1))]).headers(headers));
    let is_sent = |name: &str| refusal.headers().contains_key(name);
    let only_in_calls: Vec<_> = exposed.iter().filter(|name| !is_sent(name)).collect();
    assert_eq!(only_in_calls, [&"grpc-retry-pushback-ms", &"grpc-status", &"grpc-message"]);
}

// Jitter.

#[test]
fn jitter_only_adds_to_a_wait_and_moves_t_along() {
    let layer =
        layer([policy("all", Quota::per_minute(1))]).headers(RateLimitHeaders::both().jitter(Duration::from_secs(30)));
    let waits = (0..200).map(|_| {
        let response = nth(2, &layer);
        let wait = number(response.headers(), "retry-after");
        assert!((60..=90).contains(&wait), "{wait}");
        expect(response.headers(), &[("ratelimit", &format!("\"all\";r=0;t={wait}"))]);
        assert!(body(response).contains(&format!("Retry in {wait} seconds.")));
        wait
    });
    let different: std::collections::HashSet<u64> = waits.collect();
    assert!(different.len() > 1, "200 waits of {different:?} seconds");
}

#[test]
fn jitter_leaves_admitted_responses_alone() {
    let headers = RateLimitHeaders::both().jitter(Duration::from_secs(3_000));
    let response = nth(1, &layer([policy("all", Quota::per_minute(100))]).headers(headers));
    expect(response.headers(), &[("ratelimit", "\"all\";r=99;t=60"), ("retry-after", "")]);
}

#[test]
fn the_longest_jitter_still_fits_its_field() {
    let layer = layer([policy("all", Quota::per_minute(1))]).headers(RateLimitHeaders::both().jitter(Duration::MAX));
    for _ in 0..20 {
        let response = nth(2, &layer);
        assert!(number(response.headers(), "retry-after") <= 999_999_999_999_999);
        members(response.headers(), "ratelimit");
    }
}

// Fields that are there already.

#[test]
fn nested_layers_make_one_line_of_each_field() {
    for (inner, outer) in [(10, 20), (20, 10)] {
        let inner_layer = layer([policy("inner", Quota::per_minute(inner))]);
        let outer_layer = layer([policy("outer", Quota::per_minute(outer))]);
        let service = outer_layer.layer(inner_layer.layer(upstream(200, &[])));
        let response = send(&service);
        let (first, last) = if inner < outer { ("inner", "outer") } else { ("outer", "inner") };
        let left = format!("\"{first}\";r=9;t=54, \"{last}\";r=19;t=57");
        let rules = format!("\"inner\";q={inner};w=60, \"outer\";q={outer};w=60");
        expect(
            response.headers(),
            &[
                ("ratelimit", &left),
                ("ratelimit-policy", &rules),
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "9"),
            ],
        );
        assert_eq!(response.headers().get_all("x-ratelimit-reset").iter().count(), 1);
    }
}

#[test]
fn an_inner_layer_s_refusal_lists_only_what_it_violates() {
    for headers in
        [RateLimitHeaders::both(), RateLimitHeaders::ietf(), RateLimitHeaders::legacy(), RateLimitHeaders::none()]
    {
        let inner = layer([policy("inner", Quota::per_minute(1))]).headers(headers.clone());
        let outer = layer([policy("outer", Quota::per_hour(50))]);
        let service = outer.layer(inner.layer(upstream(200, &[])));
        send(&service);
        let response = send(&service);
        assert_eq!(response.status(), 429);
        let left = line(response.headers(), "ratelimit");
        assert!(left.is_empty() || left == "\"inner\";r=0;t=60", "{headers:?}: {left}");
        let remaining = line(response.headers(), "x-ratelimit-remaining");
        assert!(remaining.is_empty() || remaining == "0", "{headers:?}: {remaining}");
        assert!(line(response.headers(), "ratelimit-policy").ends_with("\"outer\";q=50;w=3600"));
        expect(response.headers(), &[("retry-after", "60")]);
    }
}

#[test]
fn an_outer_layer_s_refusal_is_its_own() {
    let inner = layer([policy("inner", Quota::per_minute(50))]);
    let service = layer([policy("outer", Quota::per_minute(1))]).layer(inner.layer(upstream(200, &[])));
    send(&service);
    let rules = "\"outer\";q=1;w=60";
    expect(send(&service).headers(), &[("ratelimit", "\"outer\";r=0;t=60"), ("ratelimit-policy", rules)]);
}

const STRICT: &[(&str, &str)] = &[
    ("ratelimit-policy", "\"up\";q=5;w=60"),
    ("ratelimit", "\"up\";r=3;t=40"),
    ("x-ratelimit-limit", "5"),
    ("x-ratelimit-remaining", "3"),
    ("x-ratelimit-reset", "1900000000"),
];

#[test]
fn an_upstream_that_is_stricter_keeps_its_word() {
    let ours = layer([policy("ours", Quota::per_minute(100))]);
    let headers = through(&ours, 200, STRICT);
    expect(&headers, &STRICT[2..]);
    expect(&headers, &[("ratelimit-policy", "\"up\";q=5;w=60, \"ours\";q=100;w=60")]);
    expect(&headers, &[("ratelimit", "\"up\";r=3;t=40, \"ours\";r=99;t=60")]);
}

#[test]
fn a_layer_that_is_stricter_than_its_upstream_says_so_first() {
    let ours = layer([policy("ours", Quota::per_minute(2))]);
    let headers = through(&ours, 200, STRICT);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30, \"up\";r=3;t=40")]);
    expect(&headers, &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1")]);
}

#[test]
fn every_line_of_an_upstream_counts() {
    let ours = layer([policy("ours", Quota::per_minute(11))]);
    let lines = &[("ratelimit", "\"a\";r=50;t=1"), ("ratelimit", "\"b\";r=1;t=1"), ("x-ratelimit-remaining", "1")];
    let headers = through(&ours, 200, lines);
    let joined = "\"a\";r=50;t=1, \"b\";r=1;t=1, \"ours\";r=10;t=55";
    expect(&headers, &[("ratelimit", joined), ("x-ratelimit-remaining", "1")]);
}

#[test]
fn the_stricter_of_an_upstream_s_two_sets_counts() {
    let ours = layer([policy("ours", Quota::per_minute(11))]);
    let headers = through(&ours, 200, &[("ratelimit", "\"a\";r=50;t=1"), ("x-ratelimit-remaining", "1")]);
    expect(&headers, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-limit", "")]);
}

#[test]
fn an_upstream_s_limit_without_a_remainder_is_not_raised() {
    let ours = layer([policy("ours", Quota::per_minute(100))]);
    let lines = &[("x-ratelimit-limit", "5"), ("x-ratelimit-reset", "1900000000")];
    expect(&through(&ours, 200, lines), lines);
}

#[test]
fn legacy_fields_of_an_upstream_that_cannot_be_read_are_kept() {
    let fields = &[("x-ratelimit-remaining", "a few"), ("x-ratelimit-limit", "some"), ("x-ratelimit-reset", "soon")];
    expect(&through(&layer([policy("ours", Quota::per_minute(2))]), 200, fields), fields);
}

#[test]
#[cfg(feature = "merge-headers")]
fn a_field_that_is_not_of_this_draft_is_replaced_by_ours() {
    let limits = [
        "limit=5, remaining=3, reset=40",
        "5;w=60",
        "up;r=3;t=40",
        "\"up\";left=3",
        "\"up\";r=3;t=soon",
        "(\"up\");r=3",
        "\"up",
        "\"up\"\t;;",
    ];
    for value in limits {
        for name in ["ratelimit", "ratelimit-policy"] {
            let fields = vec![(name, value)].leak();
            let headers = through(&layer([policy("ours", Quota::per_minute(2))]), 200, fields);
            expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")]);
        }
    }
}

#[test]
fn a_field_in_two_drafts_stays_or_goes_as_a_whole() {
    let fields = &[
        ("ratelimit", "\"a\";r=9;t=1;more=1, old;r=7"),
        ("ratelimit", "limit=5, remaining=3"),
        ("ratelimit-policy", "100;w=60, \"a\";q=10;w=1"),
    ];
    let headers = through(&layer([policy("ours", Quota::per_minute(100))]), 200, fields);
    let lines = headers.get_all("ratelimit").iter().collect::<Vec<_>>();
    assert_eq!(lines, [fields[0].1, fields[1].1]);
    expect(&headers, &[fields[2], ("x-ratelimit-remaining", "")]);
    let headers = through(&layer([policy("ours", Quota::per_minute(2))]), 200, fields);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")]);
}

#[test]
fn what_an_upstream_leaves_by_an_older_draft_is_not_raised() {
    let fields = &[("ratelimit", "limit=5, remaining=3, reset=40")];
    let headers = through(&layer([policy("ours", Quota::per_minute(100))]), 200, fields);
    expect(&headers, &[fields[0], ("x-ratelimit-remaining", ""), ("x-ratelimit-limit", "")]);
    let headers = through(&layer([policy("ours", Quota::per_minute(2))]), 200, fields);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("x-ratelimit-remaining", "1")]);
}

#[test]
#[cfg(feature = "merge-headers")]
fn a_field_that_cannot_be_read_does_not_stop_the_stricter_legacy_set() {
    let fields = &[("ratelimit", "\"up"), ("x-ratelimit-remaining", "50")];
    let headers = through(&layer([policy("ours", Quota::per_minute(2))]), 200, fields);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("x-ratelimit-remaining", "1"), ("x-ratelimit-limit", "2")]);
}

#[test]
fn without_ours_a_field_of_another_draft_is_left_alone() {
    let fields = &[("ratelimit", "limit=5, remaining=3, reset=40"), ("ratelimit-policy", "5;w=60")];
    let ours = || policy("ours", Quota::per_minute(100));
    expect(&through(&layer([ours()]).headers(RateLimitHeaders::legacy()), 200, fields), fields);
    expect(&through(&layer([ours().unadvertised()]), 200, fields), fields);
}

#[test]
fn a_stale_used_or_resource_of_an_upstream_goes_where_our_limit_is_told() {
    let table: [&[(&str, &str)]; 3] = [
        &[("x-ratelimit-used", "77"), ("x-ratelimit-resource", "core")],
        &[("x-ratelimit-used", "77"), ("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "23")],
        &[("x-ratelimit-resource", "core"), ("ratelimit", "\"up\";r=50")],
    ];
    for fields in table {
        let ours = || layer([policy("ours", Quota::per_minute(2))]);
        let headers = through(&ours(), 200, fields);
        expect(&headers, &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1")]);
        expect(&headers, &[("x-ratelimit-used", ""), ("x-ratelimit-resource", "")]);
        let headers = through(&ours().headers(RateLimitHeaders::both().used().resource()), 200, fields);
        expect(&headers, &[("x-ratelimit-used", "1"), ("x-ratelimit-resource", "ours")]);
    }
}

#[test]
fn used_and_resource_of_a_stricter_upstream_stay_beside_its_limit() {
    let fields = &[
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "3"),
        ("x-ratelimit-used", "2"),
        ("x-ratelimit-resource", "core"),
    ];
    for headers in [RateLimitHeaders::both(), RateLimitHeaders::legacy().used().resource(), RateLimitHeaders::ietf()] {
        expect(&through(&layer([policy("ours", Quota::per_minute(100))]).headers(headers), 200, fields), fields);
    }
    let only_used = &[("x-ratelimit-used", "2")];
    expect(
        &through(&layer([policy("ours", Quota::per_minute(2))]).headers(RateLimitHeaders::ietf()), 200, only_used),
        only_used,
    );
}

#[test]
fn an_empty_field_of_an_upstream_leaves_no_comma() {
    let ours = layer([policy("ours", Quota::per_minute(2))]);
    let headers = through(&ours, 200, &[("ratelimit", ""), ("ratelimit-policy", " ")]);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")]);
}

#[test]
fn an_upstream_s_retry_after_is_kept_whatever_its_status() {
    for status in [200, 301, 429, 503] {
        let ours = layer([policy("ours", Quota::per_minute(2))]);
        expect(&through(&ours, status, &[("retry-after", "17")]), &[("retry-after", "17")]);
    }
}

#[test]
fn an_upstream_s_refusal_is_passed_on_as_it_is() {
    let ours = layer([policy("ours", Quota::per_minute(2))]);
    let fields = &[
        ("ratelimit", "\"up\";r=0;t=17"),
        ("retry-after", "17"),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1900000000"),
    ];
    expect(&through(&ours, 429, fields), fields);
}

#[test]
fn an_upstream_s_wait_is_not_contradicted_by_units_left_here() {
    let table: [&[(&str, &str)]; 2] = [&[("retry-after", "17")], &[("x-ratelimit-remaining", "0")]];
    for fields in table {
        let headers = through(&layer([policy("ours", Quota::per_minute(100))]), 429, fields);
        expect(&headers, fields);
        expect(&headers, &[("ratelimit", ""), ("x-ratelimit-limit", "")]);
        expect(&headers, &[("ratelimit-policy", "\"ours\";q=100;w=60")]);
    }
}

#[test]
fn responses_of_any_status_carry_the_fields() {
    for status in [200, 201, 304, 401, 403, 404, 429, 500] {
        let headers = through(&layer([policy("ours", Quota::per_minute(100))]), status, &[]);
        expect(&headers, &[("ratelimit", "\"ours\";r=99;t=60"), ("x-ratelimit-remaining", "99"), ("retry-after", "")]);
    }
}

#[test]
fn headers_of_the_inner_service_that_are_not_ours_are_left_alone() {
    let fields = &[("content-type", "text/plain"), ("cache-control", "max-age=9"), ("x-other", "1")];
    expect(&through(&layer(three()), 200, fields), fields);
}

#[test]
fn a_rejection_of_one_s_own_carries_the_fields() {
    let layer = layer([policy("all", Quota::per_minute(1))]);
    let layer = layer.on_denied_http(|_: &Parts, _: &Denial<'_>| Response::builder().status(420).body("calm").unwrap());
    let response = nth(2, &layer);
    assert_eq!(response.status(), 420);
    expect(response.headers(), &[("ratelimit", "\"all\";r=0;t=60"), ("ratelimit-policy", "\"all\";q=1;w=60")]);
    expect(response.headers(), &[("retry-after", "60"), ("cache-control", "no-store"), ("content-type", "")]);
}

#[test]
fn a_policy_that_does_not_apply_is_not_listed() {
    let user = policy("user", Quota::per_minute(5)).key(key::header("x-user"));
    let response = nth(1, &layer([user, policy("all", Quota::per_minute(9))]));
    expect(response.headers(), &[("ratelimit-policy", "\"all\";q=9;w=60"), ("ratelimit", "\"all\";r=8;t=54")]);
}

// Any quota.

fn quota() -> impl Strategy<Value = Quota> {
    let window =
        prop_oneof![Just(1), 2_u64..1_000, 1_000_u64..60_000_000, (61_u64..100_000).prop_map(|s| s * 1_000_000)];
    let parts = (any::<bool>(), prop_oneof![1_u64..10, 1_u64..10_000], window, 1_u64..10_000);
    parts.prop_filter_map("beyond the bounds", |(fixed, limit, micros, burst)| {
        let window = Duration::from_micros(micros);
        if fixed {
            return Quota::try_fixed_window(limit, window).ok();
        }
        Quota::try_token_bucket(limit, window).and_then(|quota| quota.try_burst(burst)).ok()
    })
}

proptest! {
    #[test]
    fn any_limit_is_told_in_fields_that_parse_and_hold(
        quotas in proptest::collection::vec((quota(), 1_u64..4), 1..4),
        steps in proptest::collection::vec(0_u64..3_000_000, 1..12),
    ) {
        let clock = ManualClock::new();
        let mut layer = RateLimitLayer::composite(memory(&clock));
        let mut expected = Vec::new();
        for (index, (quota, cost)) in quotas.iter().enumerate() {
            expected.push(format!("p{index}"));
            layer = layer.policy(policy(&expected[index], *quota).cost_by({
                let cost = *cost;
                move |_| cost
            }));
        }
        let service = layer.layer(upstream(200, &[]));
        for step in steps {
            clock.advance(Duration::from_micros(step));
            let response = send(&service);
            let rules = members(response.headers(), "ratelimit-policy");
            prop_assert!(rules.iter().map(|(name, _)| name).eq(&expected));
            let admitted = response.status() == 200;
            let wait = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().parse::<u64>().unwrap());
            prop_assert!(wait.is_none_or(|wait| wait > 0 && !admitted));
            for (name, left) in members(response.headers(), "ratelimit") {
                let (_, rule) = rules.iter().find(|(rule, _)| *rule == name).expect("a policy");
                let [(_, q), (_, w)] = rule[..] else { panic!("{rule:?}") };
                let r = left[0].1;
                prop_assert!(q > 0 && w > 0 && r <= q);
                let Some((_, t)) = left.get(1) else { prop_assert!(!admitted); continue };
                prop_assert!(*t > 0 && wait.is_none_or(|wait| wait >= *t));
                prop_assert!(!admitted || u128::from(r) * u128::from(w) <= u128::from(q) * u128::from(*t));
            }
        }
    }

    #[test]
    fn who_waits_as_told_is_served(quota in quota(), cost in 1_u64..10, steps in proptest::collection::vec(0_u64..3_000_000, 1..20)) {
        let clock = ManualClock::new();
        let service = RateLimitLayer::new(memory(&clock), policy("all", quota).cost_by(move |_| cost)).layer(upstream(200, &[]));
        for step in steps {
            clock.advance(Duration::from_micros(step));
            let response = send(&service);
            if response.status() == 429 {
                prop_assert_eq!(response.headers().contains_key("retry-after"), cost <= quota.capacity());
                if cost > quota.capacity() { break }
                clock.advance(SECOND * u32::try_from(number(response.headers(), "retry-after")).unwrap());
                prop_assert_eq!(send(&service).status(), 200);
            }
        }
    }
}
