//! What labels hold: names of policies, and words of this crate.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;
use crate::support::doubles::unavailable;

/// In every part of a request that can be a key.
const SECRET: &str = "hunter2";

async fn send(layer: &RateLimitLayer) {
    let serve =
        service_fn(|_: Request<Full<Bytes>>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let request = Request::builder()
        .method(SECRET)
        .uri(format!("http://{SECRET}.example/{SECRET}?q={SECRET}"))
        .header("host", format!("{SECRET}.example"))
        .header("x-user", SECRET)
        .header("cookie", format!("session={SECRET}"))
        .header("authorization", format!("Bearer {SECRET}"))
        .body(Full::default())
        .expect("a request");
    layer.layer(serve).oneshot(request).await.expect("a response");
}

fn policies() -> Vec<Policy> {
    let one = |name| Policy::new(name, Quota::per_hour(1));
    vec![
        one("header").key(key::header("x-user").plain()),
        one("path").key(key::path()).shadow(),
        one("query").key(key::query("q")),
        one("cookie").key(key::cookie("session")),
        one("bearer").key(key::bearer()),
        one("method").key(key::method()),
        one("host").key(key::host()),
    ]
}

#[tokio::test]
async fn nothing_of_a_request_is_a_label() {
    let watch = Watch::start();
    let admitting_none = RateLimitLayer::composite(MemoryStore::new()).policies(policies());
    let without_store = RateLimitLayer::composite(unavailable()).policies(policies());
    for layer in [admitting_none, without_store] {
        for _ in 0..10 {
            send(&layer).await;
        }
    }
    let limiter = Limiter::new(MemoryStore::new(), policies().iter().map(|policy| policy.rule().clone()));
    for _ in 0..2 {
        let _ = limiter.check(&Key::new("user", SECRET)).await.expect("memory decides");
    }
    let all = watch.all();
    for (series, ..) in &all {
        assert!(!series.contains(SECRET), "{series}");
        let labels = series.split_once('{').map_or("", |(_, labels)| labels);
        let names = labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
        for (name, value) in names {
            assert!(["source", "verdict", "policy", "mode", "reason", "kind", "to"].contains(&name), "{series}");
            assert!(value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{series}");
        }
    }
    let refusing = all.iter().filter(|(series, ..)| series.starts_with("tollgate_policy_refusals_total"));
    assert_eq!(refusing.count(), policies().len(), "one series a policy, in three places");
}
