//! What labels hold: names of policies, and words of this crate.

use http::Request;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_test::send;

use super::watch::Watch;
use crate::support::doubles::unavailable;

/// In every part of a request that can be a key.
const SECRET: &str = "hunter2";

fn request(_: usize) -> Request<String> {
    let request = Request::builder()
        .method(SECRET)
        .uri(format!("http://{SECRET}.example/{SECRET}?q={SECRET}"))
        .header("host", format!("{SECRET}.example"))
        .header("x-user", SECRET)
        .header("cookie", format!("session={SECRET}"))
        .header("authorization", format!("Bearer {SECRET}"));
    request.body(String::new()).expect("a request")
}

fn policies() -> [Policy; 7] {
    let one = |name| Policy::new(name, Quota::per_hour(1));
    [
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
    send(&RateLimitLayer::composite(MemoryStore::new()).policies(policies()), 10, request).await;
    send(&RateLimitLayer::composite(unavailable()).policies(policies()), 10, request).await;
    let all = watch.all();
    for (series, ..) in &all {
        let labels = series.split_once('{').map_or("", |(_, labels)| labels);
        for (name, value) in labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('=')) {
            assert!(["source", "verdict", "policy", "mode", "reason", "kind", "to"].contains(&name), "{series}");
            assert!(value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{series}");
        }
    }
    let refusing = all.iter().filter(|(series, ..)| series.starts_with("tollgate_policy_denials_total"));
    assert_eq!(refusing.count(), policies().len(), "one series a policy, in two places");
}
