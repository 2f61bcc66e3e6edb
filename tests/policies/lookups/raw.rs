//! A lookup has the value the client sent; nobody else has.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use http::{Request, Response};
use tollgate::key::{self, KeyExtractor, Lookup, Secret};
use tollgate::policy::TierLookup;
use tollgate::{Key, Limiter, Policy, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;

use super::rig::{MANY, Text, memory};

const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-and-more";

/// What lookups were given: a text for each value, and how they show themselves.
type Seen = Arc<Mutex<Vec<(Vec<Option<String>>, String)>>>;

fn seeing() -> (Seen, TierLookup) {
    let seen = Seen::default();
    let notes = Arc::clone(&seen);
    let lookup = TierLookup::new(move |wanted: Lookup| {
        let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        notes.lock().expect("nobody panics").push((wanted.values().map(text).collect(), format!("{wanted:?}")));
        std::future::ready(Ok::<_, &str>(None::<Quota>))
    });
    (seen, lookup)
}

/// The values that a lookup by a key has for a request.
async fn values(key: impl KeyExtractor, request: Request<axum::body::Body>) -> Vec<Option<String>> {
    let (seen, lookup) = seeing();
    let layer = RateLimitLayer::new(memory(), Policy::new("user", MANY).key(key).tier_lookup(lookup));
    let app = Router::new().route("/users/{id}", get(|| async {})).layer(layer);
    let response: Response<_> = app.oneshot(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let seen = seen.lock().expect("nobody panics");
    let [(values, shown)] = &seen[..] else { panic!("one lookup, not {seen:?}") };
    for value in values.iter().flatten().filter(|value| value.starts_with("sk_")) {
        assert!(!shown.contains(value.as_str()), "{shown}");
    }
    values.clone()
}

fn asks(uri: &str, header: &'static str, value: &str) -> Request<axum::body::Body> {
    let mut request = Request::builder().uri(uri).header(header, value).body(axum::body::Body::empty());
    let extensions = request.as_mut().expect("a request").extensions_mut();
    extensions.insert(LONG.to_owned());
    request.expect("a request")
}

/// Checks what a lookup by a key has.
async fn has(key: impl KeyExtractor, header: &'static str, value: &str, expected: &str) {
    assert_eq!(values(key, asks("/users/7", header, value)).await, [Some(expected.to_owned())]);
}

#[tokio::test]
async fn a_lookup_has_the_value_of_each_key_as_it_was_sent() {
    has(key::header("x-api-key"), "x-api-key", "sk_live_ada", "sk_live_ada").await;
    has(key::header("x-api-key").plain(), "x-api-key", "sk {a} %", "sk {a} %").await;
    has(key::header("x-api-key").plain(), "x-api-key", LONG, LONG).await;
    has(key::cookie("session"), "cookie", "a=b; session=\"sk_1\"", "sk_1").await;
    has(key::bearer(), "authorization", "Bearer sk_live_ada", "sk_live_ada").await;
    has(key::basic_user(), "authorization", "Basic c2tfYWRhOnNlY3JldA==", "sk_ada").await;
    has(key::host(), "host", "Example.org", "example.org").await;
    has(key::extension(|text: &String| text.clone()), "x-a", "b", LONG).await;
    has(key::from_fn(|parts| parts.uri.path().to_owned()), "x-a", "b", "/users/7").await;
    has(|parts: &http::request::Parts| parts.extensions.get::<String>().cloned(), "x-a", "b", LONG).await;
    has(key::from_fn(|_| Secret::new("user", "sk_ada")), "x-a", "b", "sk_ada").await;
    has(key::global(), "x-a", "b", "").await;
    has(key::method(), "x-a", "b", "GET").await;
    has(key::route(), "x-a", "b", "/users/{id}").await;
    has(key::path_param("id"), "x-a", "b", "7").await;
    has(key::path(), "x-a", "b", "/users/7").await;
}

#[tokio::test]
async fn long_values_are_not_lost() {
    let long = || asks(&format!("/users/{LONG}%7D?q=%20{LONG}"), "x-a", "b");
    assert_eq!(values(key::path_param("id"), long()).await, [Some(format!("{LONG}}}"))]);
    assert_eq!(values(key::query("q"), long()).await, [Some(format!(" {LONG}"))]);
    assert_eq!(values(key::path(), long()).await, [Some(format!("/users/{LONG}%7D"))]);
}

#[tokio::test]
async fn a_lookup_by_joined_keys_has_each_value() {
    let some = |text: &str| Some(text.to_owned());
    let secret = || key::from_fn(|_| Secret::new("user", "sk_ada"));
    let joined = (key::header("x-api-key"), key::method(), secret());
    assert_eq!(
        values(joined, asks("/users/7", "x-api-key", "sk_1")).await,
        [some("sk_1"), some("GET"), some("sk_ada")]
    );
    let twice = (key::header("x-api-key"), key::bearer());
    let mut request = asks("/users/7", "x-api-key", "sk_1");
    request.headers_mut().insert("authorization", "Bearer sk_1".parse().expect("a header value"));
    assert_eq!(values(twice, request).await, [some("sk_1"), some("sk_1")]);
}

#[tokio::test]
async fn a_hash_that_comes_without_its_value_is_no_value() {
    let hashed = key::from_fn(|_| Key::hashed("user", "sk_ada"));
    assert_eq!(values(hashed, asks("/users/7", "x-a", "b")).await, [None]);
    let (seen, lookup) = seeing();
    let limiter = Limiter::new(memory(), [Rule::new("user", MANY).tier_lookup(lookup)]);
    let _ = limiter.check(&Key::hashed("user", "sk_ada")).await.expect("memory decides");
    let _ = limiter.check(&Key::new("user", "a b")).await.expect("memory decides");
    let seen: Vec<_> = seen.lock().expect("nobody panics").iter().map(|(values, _)| values.clone()).collect();
    assert_eq!(seen, [vec![None], vec![Some("a b".to_owned())]]);
}

#[tokio::test]
async fn an_account_is_looked_up_by_the_token_and_its_quota_by_the_account() {
    let (seen, lookup) = seeing();
    let account = key::lookup(key::bearer(), async |token: Lookup| {
        Ok::<_, &str>(token.text().filter(|token| *token == "sk_live_ada").map(|_| Key::new("account", "7")))
    });
    let layer = RateLimitLayer::new(memory(), Policy::new("account", MANY).key(account).tier_lookup(lookup));
    let mut request = Request::new(Text::default());
    request.headers_mut().insert("authorization", "Bearer sk_live_ada".parse().expect("a header value"));
    assert_eq!(super::rig::send(&layer, request).await.status(), 200);
    assert_eq!(seen.lock().expect("nobody panics")[0].0, [Some("7".to_owned())]);
}

#[test]
fn what_holds_a_value_does_not_show_it() {
    let secret = Secret::new("user", "sk_live_ada");
    let extracted = key::Extracted::from(secret.clone());
    for shown in [format!("{secret:?}"), format!("{extracted:?}"), secret.key().to_string()] {
        assert!(!shown.contains("sk_live_ada"), "{shown}");
    }
}
