//! What logs have of decisions, and of what they are about (feature `serde`).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use http::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate::policy::{Algorithm, PolicyName};
use tollgate::store::{BreakerState, Check, Counter, Mode};
use tollgate::{Ban, Decision, Key, MemoryStore, Outcome, Policy, Quota, RateLimitLayer, Source, key};

const SECOND: Duration = Duration::from_secs(1);

fn check(policy: &str, quota: Quota) -> Check {
    Check::new(Counter::new(policy.parse().expect("a valid name"), Key::new("user", "ada"), quota), 1)
}

#[track_caller]
fn assert_serialized(value: impl Serialize, expected: &Value) {
    assert_eq!(serde_json::to_value(value).expect("it is data"), *expected);
}

#[track_caller]
fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, json: &str) {
    assert_eq!(serde_json::to_string(value).expect("it is data"), json);
    assert_eq!(serde_json::from_str::<T>(json).expect("it was written"), *value);
}

/// An outcome, of which two fields are given and the others are of a request that is refused for good.
fn outcome(policy: &str, limit: u64, window: f64, fields: &Value) -> Value {
    let mut outcome = json!({
        "policy": policy, "key": "user:ada", "overridden": false, "limit": limit, "window_seconds": window, "shadow": false, "allowed": false, "remaining": 0,
        "reset_after_seconds": 0.0, "retry_after_seconds": null, "retry_is_guess": false, "banned_for_seconds": null,
        "delay_seconds": 0.0,
    });
    outcome.as_object_mut().expect("it is one").extend(fields.as_object().expect("they are").clone());
    outcome
}

#[test]
fn a_decision_has_the_outcome_of_each_policy_with_times_in_seconds() {
    let minute = check("minute", Quota::per_minute(100));
    let queue = check("queue", Quota::leaky_bucket(10, SECOND).queue(5)).mode(Mode::Shadow);
    let denied = Outcome::denied(&minute, 0, Some(Duration::from_micros(600_001))).with_reset_after(60 * SECOND);
    let decision = Decision::new([denied, Outcome::denied(&queue, 2, None).guessed()], Source::DenyCache);
    let outcomes = [
        outcome("minute", 100, 60.0, &json!({ "reset_after_seconds": 60.0, "retry_after_seconds": 0.600_001 })),
        outcome("queue", 10, 1.0, &json!({ "shadow": true, "remaining": 2 })),
    ];
    let expected = json!({
        "allowed": false, "source": "deny_cache", "binding": "minute", "retry_after_seconds": 0.600_001,
        "delay_seconds": 0.0, "outcomes": outcomes, "outer": null,
    });
    assert_serialized(&decision, &expected);
    let nothing = json!({
        "allowed": true, "source": "fail_open", "binding": null, "retry_after_seconds": null, "delay_seconds": 0.0,
        "outcomes": [], "outer": null,
    });
    assert_serialized(Decision::new([], Source::FailOpen), &nothing);
    let banned = Outcome::allowed(&check("login", Quota::fixed_window(5, 60 * SECOND)), 3).banned(900 * SECOND);
    let times = json!({ "reset_after_seconds": 900.0, "retry_after_seconds": 900.0, "banned_for_seconds": 900.0 });
    assert_serialized(banned, &outcome("login", 5, 60.0, &times));
}

#[test]
fn an_explanation_has_what_each_policy_makes_of_the_request() {
    let layer = RateLimitLayer::composite(MemoryStore::new())
        .policy(Policy::new("user", Quota::per_hour(1_000)).key(key::header("x-user").plain()).cost(5))
        .policy(Policy::new("upload", Quota::concurrency(10)).methods([http::Method::PUT]).shadow());
    let (parts, ()) = Request::builder().header("x-user", "ada").body(()).expect("a valid request").into_parts();
    let quota = |algorithm: &str, limit: u64, window: f64| {
        let calendar = Value::Null;
        json!({
            "algorithm": algorithm, "limit": limit, "window_seconds": window, "capacity": limit, "calendar": calendar,
        })
    };
    let user = json!({
        "policy": "user", "applies": true, "denies": false, "shadow": false, "key": "header x-user:ada", "cost": 5,
        "quota": quota("token_bucket", 1_000, 3_600.0), "why": null,
    });
    let upload = json!({
        "policy": "upload", "applies": false, "denies": false, "shadow": true, "key": null, "cost": 0,
        "quota": quota("concurrency", 10, 30.0), "why": "its methods do not include GET",
    });
    assert_serialized(layer.live().explain(&parts), &json!({ "policies": [user, upload] }));
}

#[cfg(feature = "calendar")]
#[test]
fn a_quota_of_a_calendar_names_it() {
    let calendar = tollgate::policy::Calendar::daily("Europe/Berlin").expect("a time zone");
    let quota = serde_json::to_value(Quota::calendar_window(100, calendar)).expect("it is data");
    assert_eq!((&quota["window_seconds"], &quota["calendar"]), (&json!(86_400.0), &json!(calendar.to_string())));
}

#[test]
fn a_ban_has_when_it_begins_and_how_long_it_is() {
    assert_serialized(
        Ban::new(10, 300 * SECOND, 900 * SECOND).backoff(2.0, 86_400 * SECOND),
        &json!({ "after": 10, "within_seconds": 300.0, "duration_seconds": 900.0, "max_seconds": 86_400.0 }),
    );
}

#[test]
fn sources_algorithms_and_breakers_are_the_names_they_display() {
    let sources = [Source::Store, Source::DenyCache, Source::Lease, Source::Ratio, Source::Fallback, Source::FailOpen];
    assert_serialized(sources, &json!(["store", "deny_cache", "lease", "ratio", "fallback", "fail_open"]));
    assert_serialized(sources, &json!(sources.map(|source| source.to_string())));
    let breakers = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    assert_serialized(breakers, &json!(["closed", "open", "half_open"]));
    assert_serialized(breakers, &json!(breakers.map(|breaker| breaker.to_string())));
    let names = ["fixed_window", "sliding_log", "sliding_window", "token_bucket", "leaky_bucket", "concurrency"];
    assert_serialized(Algorithm::ALL, &json!(names));
}

#[test]
fn keys_and_names_of_policies_are_their_text_and_are_read_from_it() {
    assert_round_trip(&Key::new("user", "a}b c"), r#""user:a%7Db%20c""#);
    assert_round_trip(&Key::new("user", "ada").join(&Key::new("route", "/search")), r#""user+route:ada|/search""#);
    assert_round_trip(&PolicyName::try_from("login").expect("a valid name"), r#""login""#);
    assert_round_trip(&BTreeMap::from([(Key::new("user", "ada"), 7)]), r#"{"user:ada":7}"#);

    let error = serde_json::from_str::<Key>(r#""user:a}b c""#).expect_err("it is not escaped").to_string();
    let sentence = "user:a}b c".parse::<Key>().expect_err("it is not escaped").to_string();
    assert!(error.starts_with(&sentence), "{error}");
    assert!(serde_json::from_str::<PolicyName>(r#""log in""#).is_err());
}
