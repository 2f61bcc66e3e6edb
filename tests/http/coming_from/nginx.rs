//! `limit_req` and `limit_conn` of a real nginx.

use std::fmt::Write;

use axum::Router;
use axum::routing::get;
use http::Request;
use tokio::time::sleep;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_config::Config;

use super::{HALF, PAGE, SECOND, alike, row};
use crate::rig::{Text, with};
use crate::sockets::{Http, Server};
use crate::support::nginx::Nginx;

/// What is behind the limits of nginx: `/events` takes half the time of a unit.
fn app() -> Router {
    let events = async || sleep(HALF).await;
    ["/search", "/login"]
        .iter()
        .fold(Router::new().route("/events", get(events)), |app, path| app.route(path, get(async || "hello")))
}

/// The first block of the page in a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n```{language}\n")).expect("the page has one");
    rest.split_once("\n```\n").expect("it ends").0
}

#[tokio::test]
async fn each_limit_req_admits_and_delays_like_the_leaky_bucket_of_the_page() {
    let strict = Quota::leaky_bucket(2, SECOND);
    let batches = [(0, 8), (3, 3), (7, 3)];
    let rows = [
        ("limit_req zone=ip;", "Quota::leaky_bucket(2, SECOND)", strict, [1, 1, 1]),
        ("limit_req zone=ip burst=4;", "Quota::leaky_bucket(2, SECOND).queue(4)", strict.queue(4), [5, 1, 2]),
        (
            "limit_req zone=ip burst=4 delay=2;",
            "Quota::leaky_bucket(2, SECOND).queue(4).nodelay(3)",
            strict.queue(4).nodelay(3),
            [5, 1, 2],
        ),
        (
            "limit_req zone=ip burst=4 nodelay;",
            "Quota::token_bucket(2, SECOND).burst(5)",
            Quota::token_bucket(2, SECOND).burst(5),
            [5, 1, 2],
        ),
    ];
    let (mut zones, mut locations, mut ours) = (String::new(), String::new(), Router::new());
    for (place, (directive, text, quota, _)) in rows.iter().enumerate() {
        row(directive, text);
        let directive = directive.replace("zone=ip", &format!("zone=z{place}"));
        writeln!(zones, "limit_req_zone $binary_remote_addr zone=z{place}:1m rate=2r/s;").expect("a string");
        writeln!(locations, "location /{place} {{ {directive} proxy_pass http://app/login; }}").expect("a string");
        let policy = Policy::new("api", *quota).key(key::client_ip());
        let layer = RateLimitLayer::new(MemoryStore::new(), policy);
        ours = ours.merge(Router::new().route(&format!("/{place}"), get(async || "hello")).layer(layer));
    }
    let (theirs, ours) = (Server::start(app()).await, Server::start(ours).await);
    let nginx = Nginx::start_limiting(theirs.address.port(), &zones, &locations);
    let nginx = |path: &str| format!("http://127.0.0.1:{}{path}", nginx.port(false, false));
    futures::future::join_all(rows.iter().enumerate().map(async |(place, (directive, _, _, served))| {
        let path = format!("/{place}");
        assert_eq!(alike([&nginx(&path), &ours.uri(&path)], &batches).await, served, "{directive}");
    }))
    .await;
}

#[tokio::test]
async fn the_directives_of_the_page_and_its_file_of_policies_admit_the_same() {
    let config = Config::from_toml(block("toml")).expect("the page has a valid file");
    let ours = Server::start(app().layer(config.layer(MemoryStore::new()).expect("a valid layer"))).await;
    let theirs = Server::start(app()).await;
    let (zones, locations) = block("nginx").split_once("\n\n").expect("locations stand apart");
    let nginx = Nginx::start_limiting(theirs.address.port(), zones, locations);
    let both = |path: &str| [format!("http://127.0.0.1:{}{path}", nginx.port(false, false)), ours.uri(path)];
    let [search, events] = ["/search", "/events"].map(both);
    let search = alike([&search[0], &search[1]], &[(0, 8), (3, 3), (7, 3)]);
    let events = alike([&events[0], &events[1]], &[(0, 4), (3, 1), (6, 9)]);
    assert_eq!(tokio::join!(search, events), (vec![5, 1, 2], vec![2, 1, 2]));

    // A request without the header has an empty key, which neither counts.
    for (uri, status) in both("/login").into_iter().zip([503, 429]) {
        let http = Http::from("127.0.0.2");
        let send = async |key: Option<&str>| {
            let request = Request::get(&uri).body(Text::default()).expect("a request");
            let request = if let Some(key) = key { with(request, "x-api-key", key) } else { request };
            http.request(request).await
        };
        for (key, expected) in [(Some("a"), 200), (Some("a"), 200), (Some("a"), status), (Some("b"), 200)] {
            let response = send(key).await;
            assert_eq!(response.status(), expected, "{uri}, {key:?}");
            assert_eq!(response.headers().contains_key("retry-after"), expected == 429, "{uri}, {key:?}");
        }
        for _ in 0..5 {
            assert_eq!(send(None).await.status(), 200, "{uri}");
        }
    }
}

#[tokio::test]
async fn what_one_limit_req_denies_takes_nothing_from_another_one() {
    let zones = "limit_req_zone $binary_remote_addr zone=few:1m rate=1r/m;
        limit_req_zone $binary_remote_addr zone=many:1m rate=1r/m;";
    let (few, many) = ("limit_req zone=few;", "limit_req zone=many burst=3 nodelay;");
    let (last, end) = ("location /search", "proxy_pass http://app/login;");
    for limits in [format!("{few} {many}"), format!("{many} {few}")] {
        let locations = format!("location /login {{ {limits} {end} }} {last} {{ {many} {end} }}");
        let server = Server::start(app()).await;
        let nginx = Nginx::start_limiting(server.address.port(), zones, &locations);
        let http = Http::new();
        let mut sent = Vec::new();
        for path in ["login"; 6].into_iter().chain(["search"; 5]) {
            let uri = format!("http://127.0.0.1:{}/{path}", nginx.port(false, false));
            sent.push(http.get(uri).await.status().as_u16());
        }
        assert_eq!(sent, [[200].as_slice(), &[503; 5], &[200; 3], &[503; 2]].concat(), "{limits}");
    }
}

/// One request a minute is one in 62.5 s: nginx keeps whole thousandths of a request a second, of 16.67 it keeps 16.
#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_rate_by_the_minute_is_rounded_down_by_nginx() {
    let zones = "limit_req_zone $binary_remote_addr zone=ip:1m rate=1r/m;";
    let locations = "location /search { limit_req zone=ip; proxy_pass http://app; }";
    let theirs = Server::start(app()).await;
    let nginx = Nginx::start_limiting(theirs.address.port(), zones, locations);
    let policy = Policy::new("ip", Quota::leaky_bucket(1, 60 * SECOND)).key(key::client_ip());
    let ours = Server::start(app().layer(RateLimitLayer::new(MemoryStore::new(), policy))).await;
    let nginx = format!("http://127.0.0.1:{}/search", nginx.port(false, false));
    let [theirs, ours] = super::both([&nginx, &ours.uri("/search")], &[(0, 1), (243, 1), (252, 1)]).await;
    assert_eq!(theirs, [vec![0], vec![], vec![252]]);
    assert_eq!(ours, [vec![0], vec![243], vec![]]);
}
