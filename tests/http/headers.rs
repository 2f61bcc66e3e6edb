//! The text of the header fields and of the problem document.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, Response};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::body::ResponseBody;
use tollgate::key;
use tollgate::response::{Draft, exposed_headers};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::Layer;

use crate::rig::{Text, expect, hello, layer, line, request, send, text};
use crate::support::time::memory;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn policy(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota)
}

fn all(quota: Quota) -> Policy {
    policy("all", quota)
}

/// The response of a layer to the last of some requests.
#[track_caller]
fn nth(count: usize, layer: &RateLimitLayer) -> Response<ResponseBody<Text>> {
    let service = layer.layer(hello());
    (1..count).for_each(|_| drop(send(&service, request())));
    send(&service, request())
}

#[track_caller]
fn number(headers: &HeaderMap, name: &str) -> u64 {
    line(headers, name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
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

/// A wide, a wider and a narrow policy.
fn three() -> [Policy; 3] {
    [
        policy("ip", Quota::per_minute(300)),
        policy("user", Quota::per_hour(5_000)),
        policy("search", Quota::per_minute(30)),
    ]
}

/// A layer, how many requests it has, the headers of the response to the last, and what its body says.
type Row<'a> = (RateLimitLayer, usize, &'a [(&'a str, &'a str)], &'a str);

#[test]
#[allow(clippy::too_many_lines, reason = "it is a table")]
fn a_response_says_what_is_left_and_a_refusal_by_whom_it_is_and_for_how_long() {
    let keyless = policy("user", Quota::per_minute(5)).key(key::header("x-session"));
    let quick_and_slow =
        [policy("quick", Quota::per_minute(1)), policy("slow", Quota::per_hour(1)), three()[0].clone()];
    let short = Quota::token_bucket(1, Duration::from_millis(100));
    let wide_and_narrow = [policy("wide", Quota::per_minute(100)), policy("narrow", Quota::per_minute(10))];
    let hidden = || policy("hidden", Quota::per_minute(2)).unadvertised();
    let around_hidden = [policy("wide", Quota::per_minute(20)), hidden(), policy("narrow", Quota::per_minute(10))];
    let legacy = || RateLimitHeaders::legacy().used();
    let rows: [Row<'_>; 13] = [
        (
            layer([policy("default", Quota::per_minute(100))]),
            1,
            &[
                ("ratelimit-policy", "\"default\";q=100;w=60"),
                ("ratelimit", "\"default\";r=99;t=60"),
                ("x-ratelimit-limit", "100"),
                ("x-ratelimit-remaining", "99"),
                ("retry-after", ""),
                ("cache-control", ""),
            ],
            "hello",
        ),
        (
            layer(three()),
            1,
            &[
                ("ratelimit", "\"search\";r=29;t=58, \"ip\";r=299;t=60, \"user\";r=4999;t=3600"),
                ("x-ratelimit-limit", "30"),
            ],
            "hello",
        ),
        (
            layer(quick_and_slow),
            2,
            &[
                ("ratelimit", "\"slow\";r=0;t=3600, \"quick\";r=0;t=60"),
                ("retry-after", "3600"),
                ("x-ratelimit-limit", "1"),
            ],
            r#""violated-policies":["quick","slow"]}"#,
        ),
        (layer([all(Quota::per_second(1))]), 2, &[("retry-after", "1")], "\"Retry in 1 second.\""),
        (
            layer([all(short)]),
            2,
            &[("ratelimit-policy", "\"all\";q=10;w=1"), ("ratelimit", "\"all\";r=0;t=1"), ("retry-after", "1")],
            "violated",
        ),
        (
            layer([all(Quota::per_second(10).burst(100))]),
            1,
            &[("ratelimit-policy", "\"all\";q=100;w=10"), ("ratelimit", "\"all\";r=99;t=10")],
            "hello",
        ),
        (
            layer([all(Quota::fixed_window(1_000_000_000_000, Duration::from_micros(1)))]),
            1,
            &[("ratelimit-policy", "\"all\";q=999999999999999;w=1"), ("x-ratelimit-limit", "999999999999999")],
            "hello",
        ),
        (
            layer([all(Quota::per_minute(5)).cost_by(|_| 6)]),
            1,
            &[("ratelimit", "\"all\";r=5"), ("retry-after", "")],
            "Do not retry",
        ),
        (
            layer([keyless, all(Quota::per_minute(9))]),
            1,
            &[("ratelimit-policy", "\"all\";q=9;w=60"), ("ratelimit", "\"all\";r=8;t=54")],
            "hello",
        ),
        (
            layer(wide_and_narrow).headers(legacy().resource()),
            3,
            &[
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "7"),
                ("x-ratelimit-used", "3"),
                ("x-ratelimit-resource", "narrow"),
            ],
            "hello",
        ),
        (
            layer([all(Quota::per_minute(100).burst(10))]).headers(legacy()),
            1,
            &[("x-ratelimit-remaining", "9"), ("x-ratelimit-used", "1")],
            "hello",
        ),
        (
            layer(around_hidden),
            1,
            &[
                ("ratelimit", "\"narrow\";r=9;t=54, \"wide\";r=19;t=57"),
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "9"),
            ],
            "hello",
        ),
        (layer([hidden()]), 1, &[("ratelimit-policy", ""), ("ratelimit", ""), ("x-ratelimit-limit", "")], "hello"),
    ];
    for (place, (layer, count, lines, says)) in rows.into_iter().enumerate() {
        let response = nth(count, &layer);
        assert_eq!(response.status() == 200, says == "hello", "row {place}");
        expect(response.headers(), lines);
        let text = text(response);
        assert!(text.contains(says), "row {place}: {text}");
    }
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
    assert_eq!(text(response), document);
}

#[test]
fn slots_are_advertised_without_times_as_it_is_not_known_when_they_are_free() {
    let service = layer([policy("streams", Quota::concurrency(1))]).layer(hello());
    let (open, refused) = (send(&service, request()), send(&service, request()));
    for (response, status, wait) in [(&open, 200, ""), (&refused, 429, "1")] {
        assert_eq!(response.status(), status);
        expect(
            response.headers(),
            &[
                ("ratelimit-policy", "\"streams\";q=1;qu=\"concurrent-requests\""),
                ("ratelimit", "\"streams\";r=0"),
                ("retry-after", wait),
                ("x-ratelimit-limit", "1"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", ""),
            ],
        );
    }
    let text = text(refused);
    assert!(text.contains("\"detail\":\"Retry in about 1 second.\""), "{text}");

    // Beside another policy they bind only where they refuse.
    let policies = [policy("streams", Quota::concurrency(2)), policy("hour", Quota::per_hour(9))];
    let service = layer(policies).layer(hello());
    let open = [send(&service, request()), send(&service, request())];
    expect(open[1].headers(), &[("ratelimit", "\"hour\";r=7;t=2800, \"streams\";r=0"), ("x-ratelimit-remaining", "7")]);
    assert!(open[1].headers().contains_key("x-ratelimit-reset"));
    let refused = send(&service, request());
    expect(refused.headers(), &[("ratelimit", "\"streams\";r=0"), ("retry-after", "1"), ("x-ratelimit-reset", "")]);
    expect(refused.headers(), &[("x-ratelimit-limit", "2")]);
}

#[test]
fn a_fixed_or_a_sliding_window_is_told_until_the_current_one_ends() {
    for (quota, wait) in [(Quota::fixed_window(2, MINUTE), Some("45")), (Quota::sliding_window(2, MINUTE), None)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_millis(15_500));
        let service = RateLimitLayer::new(memory(&clock), all(quota)).layer(hello());
        for (left, status) in [("\"all\";r=1;t=45", 200), ("\"all\";r=0;t=45", 200), ("\"all\";r=0;t=45", 429)] {
            let response = send(&service, request());
            assert_eq!(response.status(), status, "{quota}");
            expect(response.headers(), &[("ratelimit", left)]);
            if let (429, Some(wait)) = (status, wait) {
                expect(response.headers(), &[("retry-after", wait)]);
            }
        }
    }
}

#[test]
fn a_wait_is_rounded_up_and_never_zero() {
    let clock = ManualClock::new();
    let quota = Quota::token_bucket(1, Duration::from_millis(1_500));
    let service = RateLimitLayer::new(memory(&clock), all(quota)).layer(hello());
    send(&service, request());
    for (passed, wait) in [(0, "2"), (499, "2"), (1, "1"), (999, "1")] {
        clock.advance(Duration::from_millis(passed));
        let response = send(&service, request());
        assert_eq!(response.status(), 429);
        expect(response.headers(), &[("retry-after", wait)]);
    }
    clock.advance(Duration::from_millis(1));
    assert_eq!(send(&service, request()).status(), 200);
}

#[test]
fn a_policy_that_is_not_advertised_is_nowhere() {
    let hidden = policy("hidden", Quota::per_minute(1)).unadvertised();
    let layer = layer([hidden, policy("shown", Quota::per_minute(9))]).headers(RateLimitHeaders::both().resource());
    for count in [1, 2] {
        let response = nth(count, &layer);
        assert_eq!(response.status(), if count == 1 { 200 } else { 429 });
        expect(response.headers(), &[("ratelimit-policy", "\"shown\";q=9;w=60")]);
        if count == 2 {
            expect(response.headers(), &[("ratelimit", ""), ("x-ratelimit-limit", ""), ("retry-after", "60")]);
        }
        let shown = format!("{:?}", response.headers()) + &text(response);
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(count == 1 || shown.ends_with(r#""violated-policies":[]}"#), "{shown}");
    }
}

// Sets of fields.

#[test]
fn both_sets_are_sent_unless_told_otherwise_and_which_are_is_a_choice() {
    const IETF: [&str; 2] = ["ratelimit", "ratelimit-policy"];
    const LEGACY: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let used = [LEGACY.as_slice(), &["x-ratelimit-resource", "x-ratelimit-used"]].concat();
    let both = [IETF.as_slice(), &LEGACY].concat();
    for (headers, expected) in [
        (None, both.clone()),
        (Some(RateLimitHeaders::both()), both),
        (Some(RateLimitHeaders::ietf()), IETF.to_vec()),
        (Some(RateLimitHeaders::legacy()), LEGACY.to_vec()),
        (Some(RateLimitHeaders::none()), vec![]),
        (Some(RateLimitHeaders::none().draft(Draft::Draft11)), IETF.to_vec()),
        (Some(RateLimitHeaders::ietf().used()), IETF.to_vec()),
        (Some(RateLimitHeaders::legacy().used().resource()), used),
    ] {
        let layer = layer([all(Quota::per_minute(1))]);
        let layer = headers.iter().cloned().fold(layer, RateLimitLayer::headers);
        assert_eq!(names(nth(1, &layer).headers()), expected, "{headers:?}");
        let mut own = ["cache-control", "content-type", "retry-after"].to_vec();
        own.extend(expected);
        own.sort_unstable();
        assert_eq!(names(nth(2, &layer).headers()), own, "{headers:?}");
    }
}

#[test]
fn the_legacy_reset_is_unix_time_rounded_up_or_seconds_from_now() {
    let in_seconds = layer([all(Quota::token_bucket(2, Duration::from_millis(2_200)))]);
    let in_seconds = in_seconds.headers(RateLimitHeaders::legacy().reset_in_seconds());
    expect(nth(1, &in_seconds).headers(), &[("x-ratelimit-reset", "2")]);
    expect(nth(1, &in_seconds).headers(), &[("x-ratelimit-reset", "3")]);

    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let rounded_up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let layer = layer([all(Quota::per_hour(1))]).headers(RateLimitHeaders::legacy());
    let before = now();
    let reset = number(nth(1, &layer).headers(), "x-ratelimit-reset");
    let expected = rounded_up(before) + 3_600..=rounded_up(now()) + 3_600;
    assert!(expected.contains(&reset), "{reset} is not in {expected:?}");
}

#[test]
fn what_browsers_must_be_shown_is_all_that_is_sent() {
    let all_of_them = exposed_headers();
    let exposed: Vec<&str> = all_of_them.iter().map(HeaderName::as_str).collect();
    let listed = "retry-after ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset \
                  x-ratelimit-used x-ratelimit-resource grpc-retry-pushback-ms grpc-status grpc-message";
    assert_eq!(exposed.join(" "), listed);
    let headers = RateLimitHeaders::both().used().resource();
    let refusal = nth(2, &layer([all(Quota::per_minute(1))]).headers(headers));
    let is_sent = |name: &str| refusal.headers().contains_key(name);
    let only_in_calls: Vec<_> = exposed.iter().filter(|name| !is_sent(name)).collect();
    assert_eq!(only_in_calls, [&"grpc-retry-pushback-ms", &"grpc-status", &"grpc-message"]);
}

#[test]
fn jitter_only_adds_to_a_wait_and_moves_t_along() {
    let with = |jitter| layer([all(Quota::per_minute(1))]).headers(RateLimitHeaders::both().jitter(jitter));
    let layer = with(Duration::from_secs(30));
    expect(nth(1, &layer).headers(), &[("ratelimit", "\"all\";r=0;t=60"), ("retry-after", "")]);
    let waits = (0..200).map(|_| {
        let response = nth(2, &layer);
        let wait = number(response.headers(), "retry-after");
        assert!((60..=90).contains(&wait), "{wait}");
        expect(response.headers(), &[("ratelimit", &format!("\"all\";r=0;t={wait}"))]);
        assert!(text(response).contains(&format!("Retry in {wait} seconds.")));
        wait
    });
    let different: HashSet<u64> = waits.collect();
    assert!(different.len() > 1, "200 waits of {different:?} seconds");
    // The longest still fits its field.
    for _ in 0..20 {
        let response = nth(2, &with(Duration::MAX));
        assert!(number(response.headers(), "retry-after") <= 999_999_999_999_999);
        members(response.headers(), "ratelimit");
    }
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
        let service = layer.layer(hello());
        for step in steps {
            clock.advance(Duration::from_micros(step));
            let response = send(&service, request());
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
        let service = RateLimitLayer::new(memory(&clock), all(quota).cost_by(move |_| cost)).layer(hello());
        for step in steps {
            clock.advance(Duration::from_micros(step));
            let response = send(&service, request());
            if response.status() == 429 {
                prop_assert_eq!(response.headers().contains_key("retry-after"), cost <= quota.capacity());
                if cost > quota.capacity() { break }
                clock.advance(SECOND * u32::try_from(number(response.headers(), "retry-after")).unwrap());
                prop_assert_eq!(send(&service, request()).status(), 200);
            }
        }
    }
}
