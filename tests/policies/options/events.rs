//! What operators learn of decisions: lines of the log, fields of a span, and a callback.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use tollgate::status::LogKeys;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};
use tracing::{Instrument, Level, field, info, info_span};

use crate::rig::{HOUR, Text, hello, send, with};
use crate::support::log::Log;

fn user(limit: u64) -> Policy {
    Policy::new("user", Quota::fixed_window(limit, HOUR)).key(key::header("x-user").plain())
}

fn by(user: &str) -> Request<Text> {
    with("x-user", user)
}

/// Lines of a layer that is sent requests of these users.
fn lines(layer: &RateLimitLayer, code: &str, users: impl IntoIterator<Item = String>) -> Vec<String> {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let service = hello(layer);
    users.into_iter().for_each(|user| drop(send(&service, by(&user))));
    log.lines(&format!("code=\"{code}\""))
}

#[test]
fn lines_have_keys_as_it_is_chosen_and_a_flood_of_keys_is_few_lines() {
    let ban = Ban::new(2, HOUR, HOUR).of_verified_keys();
    let five = || (0..5).map(|_| "ada".to_owned());
    let hash = Key::hashed("header x-user", "ada");
    for code in ["denied", "near_limit", "key_banned"] {
        // Bans of one policy have a bound in the whole process.
        let layer = |name: &str| {
            let policy = Policy::new(name, Quota::fixed_window(2, HOUR)).key(key::header("x-user").plain()).ban(ban);
            RateLimitLayer::new(MemoryStore::new(), policy).log_denials().log_near_limit(0.6)
        };
        for (keys, shown) in [
            (LogKeys::Omitted, None),
            (LogKeys::Hashed, Some(hash.as_str())),
            (LogKeys::Plain, Some("header x-user:ada")),
        ] {
            let lines = lines(&layer(code).log_keys(keys), code, five());
            assert!(!lines.is_empty() && lines.len() <= 3, "{code}, {keys:?}: {lines:#?}");
            for line in lines {
                assert!(line.contains(&format!("policy=\"{code}\"")), "{line}");
                assert_eq!(line.contains("key="), shown.is_some(), "{code}, {keys:?}: {line}");
                assert!(shown.is_none_or(|key| line.contains(&format!("key=\"{key}\""))), "{line}");
                assert_eq!(line.contains("ada"), keys == LogKeys::Plain, "{line}");
            }
        }
        let flood = (0..1_000).flat_map(|number| vec![number.to_string(); 4]);
        let flood = lines(&layer(&format!("{code}-flood")).log_keys(LogKeys::Plain), code, flood);
        assert!((1..=20).contains(&flood.len()), "{code}: {}", flood.len());
    }
}

#[test]
fn a_callback_has_each_decision_with_its_keys_and_the_span_its_fields() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let layer = RateLimitLayer::new(MemoryStore::new(), user(1)).record_span().on_decision(move |decision| {
        let keys = decision.outcomes().iter().map(|outcome| outcome.key().to_string()).collect::<Vec<_>>();
        note.lock().expect("nothing panics").push((decision.is_allowed(), keys));
    });
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    for (layer, has_key) in [(layer.clone(), false), (layer.log_keys(LogKeys::Plain), true)] {
        let service = hello(&layer);
        let span = info_span!(
            "request",
            ratelimit.policy = field::Empty,
            ratelimit.remaining = field::Empty,
            ratelimit.key = field::Empty
        );
        span.in_scope(|| {
            send(&service, by(if has_key { "bob" } else { "ada" }));
            info!("served");
        });
        let line = log.lines("served").pop().expect("it was logged");
        assert!(line.contains("ratelimit.policy=\"user\" ratelimit.remaining=0"), "{line}");
        assert_eq!(line.contains("ratelimit.key=\"header x-user:bob\""), has_key, "{line}");
        send(&service, by("ada"));
    }
    let user = |name: &str| vec![format!("header x-user:{name}")];
    let expected = [(true, user("ada")), (false, user("ada")), (true, user("bob")), (false, user("ada"))];
    assert_eq!(*seen.lock().expect("nothing panics"), expected);
}

#[tokio::test]
async fn a_check_of_a_handler_is_reported_and_logged_and_leaves_the_span_to_the_layer() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let layer =
        RateLimitLayer::new(MemoryStore::new(), user(9)).record_span().log_denials().on_decision(move |decision| {
            let names = decision.outcomes().iter().map(|outcome| (outcome.policy().to_owned(), outcome.is_allowed()));
            note.lock().expect("nothing panics").extend(names);
        });
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let inner = service_fn(async |request: Request<Text>| {
        let limits = request.extensions().get::<RateLimitHandle>().expect("of the layer").clone();
        let export = Policy::new("export", Quota::fixed_window(1, HOUR));
        for _ in 0..2 {
            let _ = limits.check(&export, &Key::new("user", "ada")).await.expect("memory works");
        }
        info!("served");
        Ok::<_, Infallible>(Response::new(Text::default()))
    });
    let span = info_span!("request", ratelimit.policy = field::Empty);
    layer.layer(inner).oneshot(by("ada")).instrument(span).await.expect("it never fails");
    let expected =
        [("user", true), ("export", true), ("export", false)].map(|(name, is_allowed)| (name.to_owned(), is_allowed));
    assert_eq!(*seen.lock().expect("nothing panics"), expected);
    let denied = log.lines("code=\"denied\"");
    assert!(denied.len() == 1 && denied[0].contains("policy=\"export\""), "{denied:#?}");
    let served = log.lines("served").pop().expect("it was logged");
    assert!(
        served.contains("ratelimit.policy=\"user\"") && !served.contains("ratelimit.policy=\"export\""),
        "{served}"
    );
}

#[test]
#[should_panic(expected = "share 1.5 is not allowed")]
fn a_share_above_1_is_an_error() {
    let _ = RateLimitLayer::new(MemoryStore::new(), user(1)).log_near_limit(1.5);
}

#[test]
fn a_joined_key_is_hashed_as_a_whole() {
    let both = (key::header("x-token"), key::header("x-user").plain());
    let policy = Policy::new("both", Quota::fixed_window(1, HOUR)).key(both);
    let layer = RateLimitLayer::new(MemoryStore::new(), policy).log_denials().log_keys(LogKeys::Hashed);
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let service = hello(&layer);
    for _ in 0..2 {
        let mut request = by("ada-lovelace");
        request.headers_mut().insert("x-token", "s3cret".parse().expect("a value"));
        send(&service, request);
    }
    let line = log.lines("code=\"denied\"").pop().expect("the second is denied");
    assert!(line.contains("key=\"") && !line.contains("ada-lovelace") && !line.contains("s3cret"), "{line}");
}
