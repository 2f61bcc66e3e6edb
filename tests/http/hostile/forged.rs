//! Values, as clients send them over HTTP, that try to be another's key or to choose its slot.

use std::collections::HashSet;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tollgate::key::{self, KeyExtractor};
use tollgate::{Policy, Quota, RedisStore};
use tower::ServiceExt;

use super::rig::{HOUR, app, from};
use crate::support::server::RedisServer;

const FIVE: Quota = Quota::token_bucket(5, HOUR);

/// Who is to be hurt: the key is `tollgate:{query q:victim}:api:1t3600000m`.
const VICTIM: &str = "victim";

const FORGED: [&[u8]; 18] = [
    b"victim}",
    b"victim}:api:1t3600000m",
    b"{victim}",
    b"}{victim",
    b"x}tollgate:{query q:victim",
    b"{}",
    b"}",
    b"victim\0",
    b"\0victim",
    b"victim ",
    b"victim\r\n",
    b"victim\r\nDEL tollgate:{query q:victim}:api:1t3600000m\r\n",
    b"victim%00",
    b"%76ictim",
    b"victim|",
    b"|victim",
    b"#victim",
    b"Victim",
];

async fn send(app: &Router, uri: &str) -> Response<Body> {
    let request: Request<String> = from([203, 0, 113, 9], uri);
    let Ok(response) = app.clone().oneshot(request).await;
    response
}

fn encoded(value: &[u8]) -> String {
    percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// Checks that each of the values is counted for itself in Redis, and the victim apart.
async fn assert_apart(server: &RedisServer, key: impl KeyExtractor, uri: impl Fn(&str) -> String) {
    let settings = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    let app = app(store, [Policy::new("api", FIVE).key(key)]);
    let before = server.keys().len();
    for forged in FORGED {
        for left in (0..5).rev() {
            let response = send(&app, &uri(&encoded(forged))).await;
            let told = response.headers()["x-ratelimit-remaining"].to_str().expect("a number");
            assert_eq!(told, left.to_string(), "{:?}", String::from_utf8_lossy(forged));
        }
    }
    let response = send(&app, &uri(VICTIM)).await;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "4", "the victim has its own units");
    let keys = server.keys();
    assert_eq!(keys.len() - before, FORGED.len() + 1, "{keys:#?}");
    let mut tags = HashSet::new();
    for key in keys {
        let tag = key.strip_prefix("tollgate:{").and_then(|rest| rest.strip_suffix("}:api:1t3600000m"));
        let tag = tag.unwrap_or_else(|| panic!("{key} is not of the form it should be"));
        // What stands between the first braces chooses the slot.
        assert!(!tag.contains(['{', '}']) && tag.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{key}");
        assert!(tags.insert(tag.to_owned()), "{key}");
    }
}

#[tokio::test]
async fn what_a_query_or_a_path_decodes_to_is_a_key_of_its_own_in_redis() {
    let server = RedisServer::start();
    assert_apart(&server, key::query("q"), |value| format!("/?q={value}")).await;
    assert_apart(&server, key::path_param("id"), |value| format!("/users/{value}")).await;
    assert_apart(&server, key::path_param("rest"), |value| format!("/files/{value}")).await;
    let joined = (key::path_param("id"), key::query("q"));
    assert_apart(&server, joined, |value| format!("/users/{value}?q={value}")).await;
}
