//! The npm package express-rate-limit.

use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, StatusCode};
use tollgate::policy::Count;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};

use super::{Other, SECOND, both_from, folder, row, run};
use crate::rig::{Text, line, with};
use crate::sockets::{Http, Server};

const PACKAGE: &str = r#"{
  "private": true,
  "type": "module",
  "dependencies": { "express": "5.3.0", "express-rate-limit": "8.7.5" }
}"#;
const HOUR: Duration = Duration::from_secs(3_600);

fn start() -> Other {
    let folder = folder("express", &[("package.json", PACKAGE), ("express.js", include_str!("express.js"))]);
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(&folder));
    Other::start(Command::new("node").arg("express.js").current_dir(&folder))
}

async fn serve(layer: RateLimitLayer) -> Server {
    let fails = get(async || StatusCode::INTERNAL_SERVER_ERROR);
    Server::start(Router::new().route("/", get(async || "hello")).route("/fails", fails).layer(layer)).await
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).policies(policies)
}

/// Sends requests one after the other to both: a path, a header and what both respond.
async fn rows(uris: [&str; 2], header: &str, rows: &[(&str, &str, [u16; 2])]) {
    for (side, uri) in uris.into_iter().enumerate() {
        for (number, (path, value, statuses)) in rows.iter().enumerate() {
            let request = Request::get(format!("{uri}{path}")).body(Text::default()).expect("a request");
            let response = Http::new().request(with(request, header, value)).await;
            assert_eq!(response.status(), statuses[side], "{uri}, request {number}");
        }
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn express_rate_limit_counts_as_many_in_a_window_that_begins_with_the_first_request_of_a_key() {
    let other = start();
    row("windowMs: 2000, limit: 3", "Quota::fixed_window(3, 2 * SECOND)");
    let api = |quota| Policy::new("api", quota).key(key::client_ip());
    let ours = serve(layer([api(Quota::fixed_window(3, 2 * SECOND))])).await;
    let uris = [&*other.uri(0), &*ours.uri("/")];
    // Windows here begin every 8 halves of half a second, theirs with the first request.
    let count = |served: [Vec<Vec<u32>>; 2]| served.map(|side| side.iter().map(Vec::len).collect::<Vec<_>>());
    let batches = [(2, 5), (6, 5), (9, 5), (11, 5), (17, 5)];
    let late = count(both_from(2 * SECOND, uris, &batches).await);
    assert_eq!(late, [[3, 0, 0, 3, 0], [3, 0, 3, 0, 3]]);
    let aligned = count(both_from(2 * SECOND, uris, &[(1, 5), (6, 5), (10, 5)]).await);
    assert_eq!(aligned, [[3, 0, 3]; 2]);

    for (uri, policy, window) in
        [(uris[0], "\"3-in-2sec\"; r=2", "; q=3; w=2; pk="), (uris[1], "\"api\";r=2", ";q=3;w=2")]
    {
        let response = Http::from("127.0.0.2").get(uri.to_owned()).await;
        assert_eq!(line(response.headers(), "x-ratelimit-limit"), "3");
        assert_eq!(line(response.headers(), "x-ratelimit-remaining"), "2");
        assert!(line(response.headers(), "ratelimit").starts_with(policy), "{uri}");
        assert!(line(response.headers(), "ratelimit-policy").contains(window), "{uri}");
    }

    row("skipFailedRequests: true", ".count(Count::successes())");
    let successes = serve(layer([api(Quota::fixed_window(2, HOUR)).count(Count::successes())])).await;
    let (fails, ok, denied) = (("fails", [500; 2]), ("", [200; 2]), ("", [429; 2]));
    let paths = [fails, fails, fails, ok, ok, denied, ("fails", [429; 2])];
    rows([&other.uri(1), &successes.uri("/")], "x-none", &paths.map(|(path, both)| (path, "-", both))).await;
    row("skipSuccessfulRequests: true", ".count(Count::failures())");
    let failures = serve(layer([api(Quota::fixed_window(2, HOUR)).count(Count::failures())])).await;
    let paths = [ok, ok, ok, fails, fails, denied, ("fails", [429; 2])];
    rows([&other.uri(2), &failures.uri("/")], "x-none", &paths.map(|(path, both)| (path, "-", both))).await;

    row("app.set('trust proxy', 1)", ".trusted_hops(1)");
    let client = key::client_ip().trusted_hops(1);
    let hops = serve(layer([Policy::new("api", Quota::fixed_window(1, HOUR)).key(client)])).await;
    let spoofed = [("", "192.0.2.1, 203.0.113.9", [200; 2]), ("", "192.0.2.2, 203.0.113.9", [429; 2])];
    rows([&other.uri(3), &hops.uri("/")], "x-forwarded-for", &spoofed).await;

    let one = Policy::new("one", Quota::fixed_window(1, HOUR)).key(key::header("x-api-key"));
    let two = serve(layer([one, Policy::new("all", Quota::fixed_window(3, HOUR))])).await;
    let requests = [("", "a", [200; 2]), ("", "a", [429; 2]), ("", "a", [429; 2]), ("", "b", [429, 200])];
    rows([&other.uri(4), &two.uri("/")], "x-api-key", &requests).await;
}
