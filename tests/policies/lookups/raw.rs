//! A lookup has the value the client sent; nobody else has.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, Lookup, Secret};
use tollgate::policy::TierLookup;
use tollgate::{Key, Limiter, Policy, Quota, Rule};
use tower::ServiceExt;

use super::rig::{MANY, layer, memory, send};
use crate::rig::with;

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

/// Checks the values that a lookup by a key has for a request with a header.
async fn has<const N: usize>(key: impl KeyExtractor, header: (&str, &str), expected: [&str; N]) {
    let (seen, lookup) = seeing();
    let layer = layer(Policy::new("user", MANY).key(key).tier_lookup(lookup));
    let app = Router::new().route("/users/{id}", get(|| async {})).layer(layer);
    let request = Request::builder().uri(format!("/users/{LONG}%7D?q=%20{LONG}")).header(header.0, header.1);
    let request = request.header("x-more", "sk_1").extension(LONG.to_owned()).body(Body::empty());
    let response = app.oneshot(request.expect("a request")).await.expect("a response");
    assert_eq!(response.status(), 200);
    let seen = seen.lock().expect("nobody panics");
    let [(values, shown)] = &seen[..] else { panic!("one lookup, not {seen:?}") };
    assert_eq!(*values, expected.map(|value| Some(value.to_owned())));
    for value in values.iter().flatten().filter(|value| value.starts_with("sk_")) {
        assert!(!shown.contains(value.as_str()), "{shown}");
    }
}

/// The account that has a token.
async fn account(token: Lookup) -> Result<Option<Key>, &'static str> {
    Ok(token.text().filter(|token| *token == "sk_1").map(|_| Key::new("account", "7")))
}

#[tokio::test]
async fn a_lookup_has_the_value_of_each_key_as_it_was_sent() {
    let any = ("x-a", "b");
    let path = format!("/users/{LONG}%7D");
    let secret = || key::from_fn(|_| Secret::new("user", "sk_ada"));
    let shown = format!("{:?}, {:?}", Secret::new("user", "sk_ada"), Extracted::from(Secret::new("user", "sk_ada")));
    assert!(!shown.contains("sk_ada"), "{shown}");
    has(key::header("x-api-key"), ("x-api-key", "sk_live_ada"), ["sk_live_ada"]).await;
    has(key::header("x-api-key").plain(), ("x-api-key", "sk {a} %"), ["sk {a} %"]).await;
    has(key::header("x-api-key").plain(), ("x-api-key", LONG), [LONG]).await;
    has(key::cookie("session"), ("cookie", "a=b; session=\"sk_1\""), ["sk_1"]).await;
    has(key::bearer(), ("authorization", "Bearer sk_live_ada"), ["sk_live_ada"]).await;
    has(key::basic_user(), ("authorization", "Basic c2tfYWRhOnNlY3JldA=="), ["sk_ada"]).await;
    has(key::host(), ("host", "Example.org"), ["example.org"]).await;
    has(key::extension(|text: &String| text.clone()), any, [LONG]).await;
    has(|parts: &Parts| parts.extensions.get::<String>().cloned(), any, [LONG]).await;
    has(key::from_fn(|parts| parts.uri.path().to_owned()), any, [&path]).await;
    has(secret(), any, ["sk_ada"]).await;
    has(key::lookup(key::bearer(), account), ("authorization", "Bearer sk_1"), ["7"]).await;
    has(key::global(), any, [""]).await;
    has(key::method(), any, ["GET"]).await;
    has(key::route(), any, ["/users/{id}"]).await;
    has(key::path_param("id"), any, [&format!("{LONG}}}")]).await;
    has(key::query("q"), any, [&format!(" {LONG}")]).await;
    has(key::path(), any, [&path]).await;
    // Of joined keys it has each.
    has((key::header("x-api-key"), key::method(), secret()), ("x-api-key", "sk_1"), ["sk_1", "GET", "sk_ada"]).await;
    has((key::header("x-more"), key::bearer()), ("authorization", "Bearer sk_1"), ["sk_1", "sk_1"]).await;
}

#[tokio::test]
async fn a_hash_that_comes_without_its_value_is_no_value() {
    let (seen, lookup) = seeing();
    let layer = layer(
        Policy::new("user", MANY).key(key::from_fn(|_| Key::hashed("user", "sk_ada"))).tier_lookup(lookup.clone()),
    );
    assert_eq!(send(&layer, with("x-a", "b")).await.status(), 200);
    let limiter = Limiter::new(memory(), [Rule::new("user", MANY).tier_lookup(lookup)]);
    let _ = limiter.check(&Key::hashed("user", "sk_bob")).await.expect("memory decides");
    let _ = limiter.check(&Key::new("user", "a b")).await.expect("memory decides");
    let seen: Vec<_> = seen.lock().expect("nobody panics").iter().map(|(values, _)| values.clone()).collect();
    assert_eq!(seen, [vec![None], vec![None], vec![Some("a b".to_owned())]]);
}
