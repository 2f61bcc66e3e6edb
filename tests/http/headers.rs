//! The text of the header fields and of the problem document.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, Response};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::body::ResponseBody;
use tollgate::key;
use tollgate::response::{Draft, exposed_headers};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tollgate_test::StoreFn;
use tower::Layer;

use crate::rig::{Text, expect, hello, layer, line, request, send, text};
use crate::support::time::memory;

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

#[test]
fn a_response_says_what_is_left_of_any_quota_and_how_long_to_wait() {
    let small = Quota::token_bucket(1, Duration::from_millis(100));
    let large = Quota::fixed_window(1_000_000_000_000, Duration::from_micros(1));
    for (quota, cost, count, expected) in [
        (Quota::per_minute(100), 1, 1, r#""all";q=100;w=60 "all";r=99;t=60 99 of 100"#),
        (Quota::per_second(10).burst(100), 1, 1, r#""all";q=100;w=10 "all";r=99;t=10 99 of 100"#),
        (Quota::per_second(1), 1, 2, r#""all";q=1;w=1 "all";r=0;t=1 0 of 1 1 Retry in 1 second."#),
        (small, 1, 2, r#""all";q=10;w=1 "all";r=0;t=1 0 of 10 1 Retry in 1 second."#),
        (large, 1, 1, r#""all";q=999999999999999;w=1 "all";r=999999999999;t=1 999999999999 of 999999999999999"#),
        (Quota::per_minute(5), 6, 1, r#""all";q=5;w=60 "all";r=5 5 of 5 Do not retry"#),
    ] {
        let response = nth(count, &layer([all(quota).cost_by(move |_| cost)]));
        let told = |name| line(response.headers(), name).to_owned();
        let units = format!("{} of {}", told("x-ratelimit-remaining"), told("x-ratelimit-limit"));
        let fields = [told("ratelimit-policy"), told("ratelimit"), units, told("retry-after")];
        let text = text(response);
        let detail = text.split_once(r#""detail":""#).and_then(|(_, rest)| rest.split([':', '"']).next());
        let all = fields.iter().map(String::as_str).chain(detail).filter(|part| !part.is_empty());
        assert_eq!(all.collect::<Vec<_>>().join(" "), expected, "{quota}");
    }
}

#[test]
fn of_several_policies_the_strictest_comes_first_and_is_the_one_of_the_other_set() {
    let keyless = policy("user", Quota::per_minute(5)).key(key::header("x-session"));
    let quick_and_slow =
        [policy("quick", Quota::per_minute(1)), policy("slow", Quota::per_hour(1)), three()[0].clone()];
    let hidden = || policy("hidden", Quota::per_minute(2)).unadvertised();
    let around_hidden = [policy("wide", Quota::per_minute(20)), hidden(), policy("narrow", Quota::per_minute(10))];
    for (policies, count, left, strictest) in [
        (three().to_vec(), 1, r#""search";r=29;t=58, "ip";r=299;t=60, "user";r=4999;t=3600"#, "search 29 1 30"),
        (three().to_vec(), 3, r#""search";r=27;t=54, "ip";r=297;t=60, "user";r=4997;t=3598"#, "search 27 3 30"),
        (quick_and_slow.to_vec(), 2, r#""slow";r=0;t=3600, "quick";r=0;t=60"#, "slow 0 1 1"),
        (vec![all(Quota::per_minute(100).burst(10))], 1, r#""all";r=9;t=6"#, "all 9 1 100"),
        (vec![keyless, all(Quota::per_minute(9))], 1, r#""all";r=8;t=54"#, "all 8 1 9"),
        (around_hidden.to_vec(), 1, r#""narrow";r=9;t=54, "wide";r=19;t=57"#, "narrow 9 1 10"),
        (vec![hidden()], 1, "", "   "),
    ] {
        let response = nth(count, &layer(policies).headers(RateLimitHeaders::both().used().resource()));
        let told = |name: &str| line(response.headers(), name);
        expect(response.headers(), &[("ratelimit", left)]);
        let units = ["resource", "remaining", "used", "limit"].map(|name| told(&format!("x-ratelimit-{name}")));
        assert_eq!(units.join(" "), strictest);
        if response.status() == 200 {
            assert_eq!(told("ratelimit-policy").matches("q=").count(), told("ratelimit").matches("r=").count());
        } else {
            expect(response.headers(), &[("retry-after", "3600")]);
            assert!(text(response).ends_with(r#""violated-policies":["quick","slow"]}"#));
        }
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
        let policies = "\"streams\";q=1;qu=\"concurrent-requests\"";
        expect(response.headers(), &[("ratelimit-policy", policies), ("ratelimit", "\"streams\";r=0")]);
        expect(response.headers(), &[("retry-after", wait), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "")]);
    }
    let text = text(refused);
    assert!(text.contains("\"detail\":\"Retry in about 1 second.\""), "{text}");

    // Beside another policy they bind only where they refuse.
    let policies = [policy("streams", Quota::concurrency(2)), policy("hour", Quota::per_hour(9))];
    let service = layer(policies).layer(hello());
    let open = [send(&service, request()), send(&service, request())];
    expect(open[1].headers(), &[("ratelimit", "\"hour\";r=7;t=2800, \"streams\";r=0"), ("x-ratelimit-remaining", "7")]);
    let refused = send(&service, request());
    expect(refused.headers(), &[("ratelimit", "\"streams\";r=0"), ("retry-after", "1"), ("x-ratelimit-limit", "2")]);
    let has_reset = [&open[1], &refused].map(|response| response.headers().contains_key("x-ratelimit-reset"));
    assert_eq!(has_reset, [true, false]);
}

#[test]
fn a_fixed_or_a_sliding_window_is_told_until_the_current_one_ends() {
    for quota in [Quota::fixed_window(2, MINUTE), Quota::sliding_window(2, MINUTE)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_millis(15_500));
        let service = RateLimitLayer::new(memory(&clock), all(quota)).layer(hello());
        for (left, wait) in [("\"all\";r=1;t=45", ""), ("\"all\";r=0;t=45", ""), ("\"all\";r=0;t=45", "45")] {
            expect(send(&service, request()).headers(), &[("ratelimit", left), ("retry-after", wait)]);
        }
    }
}

#[cfg(feature = "calendar")]
#[test]
fn each_month_is_advertised_with_its_own_length() {
    // When months from the 31st begin in Berlin, in Unix time.
    const STARTS: [u64; 3] = [1_706_655_600, 1_709_161_200, 1_711_839_600];
    const DAY: u64 = 86_400;
    let clock = ManualClock::new();
    let month = tollgate::policy::Calendar::monthly("Europe/Berlin").map(|month| month.anchor(31));
    let quota = Quota::calendar_window(2, month.expect("the system has time zones"));
    let layer = RateLimitLayer::new(memory(&clock), all(quota)).headers(RateLimitHeaders::both().reset_in_seconds());
    for (start, length) in STARTS.into_iter().zip([29 * DAY, 31 * DAY, 30 * DAY - 3_600]) {
        for (left, reset) in [(1, length), (0, 1)] {
            clock.set(Duration::from_secs(start + length - reset));
            let response = nth(1, &layer);
            let fields = [format!("\"all\";q=2;w={length}"), format!("\"all\";r={left};t={reset}"), reset.to_string()];
            let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-reset"];
            expect(response.headers(), &[0, 1, 2].map(|place| (names[place], &*fields[place])));
        }
    }
}

#[test]
fn a_wait_is_rounded_up_and_never_zero() {
    let clock = ManualClock::new();
    let quota = Quota::token_bucket(1, Duration::from_millis(1_500));
    let service = RateLimitLayer::new(memory(&clock), all(quota)).layer(hello());
    for (passed, wait) in [(0, ""), (0, "2"), (499, "2"), (1, "1"), (999, "1"), (1, "")] {
        clock.advance(Duration::from_millis(passed));
        expect(send(&service, request()).headers(), &[("retry-after", wait)]);
    }
    let at_once = RateLimitLayer::new(StoreFn::new(|_| false).retry_after(Duration::ZERO), all(quota));
    expect(nth(1, &at_once).headers(), &[("retry-after", "1"), ("ratelimit", "\"all\";r=0;t=1")]);
}

#[test]
fn a_policy_that_is_not_advertised_is_nowhere() {
    let hidden = policy("hidden", Quota::per_minute(1)).unadvertised();
    let layer = layer([hidden, policy("shown", Quota::per_minute(9))]).headers(RateLimitHeaders::both().resource());
    let response = nth(2, &layer);
    let lines = [("ratelimit-policy", "\"shown\";q=9;w=60"), ("ratelimit", ""), ("x-ratelimit-limit", "")];
    expect(response.headers(), &lines);
    expect(response.headers(), &[("retry-after", "60")]);
    let shown = format!("{:?}", response.headers()) + &text(response);
    assert!(!shown.contains("hidden") && shown.ends_with(r#""violated-policies":[]}"#), "{shown}");
}

// Sets of fields.

#[test]
fn both_sets_are_sent_unless_told_otherwise_and_which_are_is_a_choice() {
    const RETRY: &str = "cache-control content-type retry-after";
    const IETF: &str = "ratelimit ratelimit-policy";
    const LEGACY: &str = "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset";
    let both = format!("{IETF} {LEGACY}");
    let more = format!("{LEGACY} x-ratelimit-resource x-ratelimit-used");
    for (headers, expected) in [
        (None, &*both),
        (Some(RateLimitHeaders::both()), &both),
        (Some(RateLimitHeaders::ietf()), IETF),
        (Some(RateLimitHeaders::legacy()), LEGACY),
        (Some(RateLimitHeaders::none()), ""),
        (Some(RateLimitHeaders::none().draft(Draft::Draft11)), IETF),
        (Some(RateLimitHeaders::ietf().used()), IETF),
        (Some(RateLimitHeaders::legacy().used().resource()), &more),
    ] {
        let layer = layer([all(Quota::per_minute(1))]);
        let layer = headers.iter().cloned().fold(layer, RateLimitLayer::headers);
        for own in ["", RETRY] {
            let response = nth(1, &layer);
            let names: BTreeSet<&str> = response.headers().keys().map(HeaderName::as_str).collect();
            let expected = own.split_whitespace().chain(expected.split_whitespace()).collect();
            assert_eq!(names, expected, "{headers:?}");
        }
    }
}

#[test]
fn the_legacy_reset_is_unix_time_rounded_up_or_seconds_from_now() {
    let in_seconds = layer([all(Quota::token_bucket(2, Duration::from_millis(2_200)))]);
    let in_seconds = in_seconds.headers(RateLimitHeaders::legacy().reset_in_seconds());
    for reset in ["2", "3"] {
        expect(nth(1, &in_seconds).headers(), &[("x-ratelimit-reset", reset)]);
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let rounded_up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let before = now();
    let reset = number(nth(1, &layer([all(Quota::per_hour(1))])).headers(), "x-ratelimit-reset");
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
    for (jitter, longest) in [(Duration::from_secs(30), 90), (Duration::MAX, 999_999_999_999_999)] {
        let layer = layer([all(Quota::per_minute(1))]).headers(RateLimitHeaders::both().jitter(jitter));
        expect(nth(1, &layer).headers(), &[("ratelimit", "\"all\";r=0;t=60"), ("retry-after", "")]);
        let waits = (0..50).map(|_| {
            let response = nth(1, &layer);
            let wait = number(response.headers(), "retry-after");
            assert!((60..=longest).contains(&wait), "{wait}");
            expect(response.headers(), &[("ratelimit", &format!("\"all\";r=0;t={wait}"))]);
            assert!(text(response).contains(&format!("Retry in {wait} seconds.")));
            wait
        });
        let different: BTreeSet<u64> = waits.collect();
        assert!(different.len() > 1 || longest > 90, "50 waits of {different:?} seconds");
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
    fn any_limit_is_told_in_fields_that_parse_and_hold_and_who_waits_as_told_is_served(
        quotas in proptest::collection::vec((quota(), 1_u64..10), 1..4),
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
            let fits = quotas.iter().all(|(quota, cost)| *cost <= quota.capacity());
            prop_assert!(admitted || wait.is_some() == fits);
            for (name, left) in members(response.headers(), "ratelimit") {
                let (_, rule) = rules.iter().find(|(rule, _)| *rule == name).expect("a policy");
                let [(_, q), (_, w)] = rule[..] else { panic!("{rule:?}") };
                let r = left[0].1;
                prop_assert!(q > 0 && w > 0 && r <= q);
                let Some((_, t)) = left.get(1) else { prop_assert!(!admitted); continue };
                prop_assert!(*t > 0 && wait.is_none_or(|wait| wait >= *t));
                prop_assert!(!admitted || u128::from(r) * u128::from(w) <= u128::from(q) * u128::from(*t));
            }
            if let Some(wait) = wait {
                clock.advance(Duration::from_secs(wait));
                prop_assert_eq!(send(&service, request()).status(), 200);
            }
        }
    }
}
