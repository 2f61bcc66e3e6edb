//! The crates actix-governor and axum-governor, in a program of their own.

use std::env;
use std::process::Command;
use std::time::Duration;

use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};

use super::{Other, SECOND, alike, folder, hello, limited, row, run};
use crate::rig::line;
use crate::sockets::{Http, Server};

/// Builds the program, which takes two minutes the first time, and starts it.
fn start() -> Other {
    let files =
        [("Cargo.toml", include_str!("others/Cargo.toml")), ("src/main.rs", include_str!("others/src/main.rs"))];
    let folder = folder("others", &files);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run(cargo.args(["build", "--target-dir", "target"]).current_dir(&folder).env_remove("CARGO_BUILD_TARGET"));
    Other::start(&mut Command::new(folder.join("target/debug/tollgate-others")))
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn actix_governor_and_axum_governor_count_like_the_token_buckets_of_the_page() {
    let other = start();
    row("milliseconds_per_request(500).burst_size(3)", "Quota::token_bucket(1, 500 * MS).burst(3)");
    row("requests_per_second(2).burst_size(3)", "Quota::per_second(2).burst(3)");
    row("Quota::requests_per_second(nz!(2u32)).burst(nz!(3u32))", "Quota::per_second(2).burst(3)");
    let rate = Quota::per_second(2).burst(3);
    for (place, quota) in [Quota::token_bucket(1, SECOND / 2).burst(3), rate, rate].into_iter().enumerate() {
        let ours = Server::start(limited(quota)).await;
        let served = alike([&other.uri(place), &ours.uri("/")], &[(0, 5), (3, 3), (7, 9)]).await;
        assert_eq!(served, [3, 1, 2]);
    }

    row("Quota::seconds_per_request(nz!(2u32))", "Quota::token_bucket(1, 2 * SECOND)");
    let ours = Server::start(limited(Quota::token_bucket(1, 2 * SECOND))).await;
    let uris = [other.uri(3), ours.uri("/")];
    assert_eq!(alike([&uris[0], &uris[1]], &[(0, 2), (5, 1), (11, 2)]).await, [1, 0, 1]);
    // The one is too early, the other one is not.
    for (uri, wait) in uris.into_iter().zip(["1", "2"]) {
        let http = Http::from("127.0.0.2");
        assert_eq!(http.get(uri.clone()).await.status(), 200);
        assert_eq!(line(http.get(uri).await.headers(), "retry-after"), wait);
    }
    let http = Http::from("127.0.0.2");
    while http.get(other.uri(0)).await.status() == 200 {}
    assert_eq!(line(http.get(other.uri(0)).await.headers(), "retry-after"), "0", "of actix-governor");

    let minute = Duration::from_secs(60);
    let one = Policy::new("one", Quota::token_bucket(1, minute)).key(key::client_ip());
    let all = Policy::new("all", Quota::token_bucket(1, minute).burst(3));
    let layer = RateLimitLayer::composite(MemoryStore::new()).policy(all).policy(one);
    let ours = Server::start(hello().layer(layer)).await;
    for (uri, last) in [(other.uri(4), 429), (ours.uri("/"), 200)] {
        for (client, status) in [("127.0.0.2", 200), ("127.0.0.2", 429), ("127.0.0.2", 429), ("127.0.0.3", last)] {
            assert_eq!(Http::from(client).get(uri.clone()).await.status(), status, "{uri} {client}");
        }
    }
}
