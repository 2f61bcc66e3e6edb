//! Bans provoked for somebody else.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::Request;
use tollgate::policy::MissingKey;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};

use super::rig::HOUR;

const VICTIM: &str = "203.0.113.9";
const PROXY: &str = "10.0.0.7";

/// One request an hour; after three refusals banned for an hour.
fn policy() -> Policy {
    Policy::new("login", Quota::fixed_window(1, HOUR)).ban(Ban::new(3, HOUR, HOUR))
}

fn behind_proxies() -> key::ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

fn from(peer: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    let address: IpAddr = peer.parse().expect("an address");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address, 4_711)));
    request
}

fn with_header(mut request: Request<String>, name: &'static str, value: &str) -> Request<String> {
    request.headers_mut().append(name, value.parse().expect("a value"));
    request
}

fn is_banned(sent: &TestResponse) -> bool {
    String::from_utf8_lossy(sent.body()).contains("#abnormal-usage-detected")
}

#[tokio::test]
async fn a_client_that_writes_the_address_of_another_bans_only_itself() {
    for (key, name, value) in [
        (behind_proxies(), "x-forwarded-for", VICTIM),
        (behind_proxies().forwarded(), "forwarded", "for=203.0.113.9"),
        (behind_proxies().header("cf-connecting-ip"), "cf-connecting-ip", VICTIM),
    ] {
        let layer = RateLimitLayer::new(MemoryStore::new(), policy().key(key));
        // Not from the proxy.
        let hostile = send(&layer, 100, |_| with_header(from("198.51.100.66"), name, value)).await;
        assert!(is_banned(&hostile[99]), "{name}");
        let victim = send(&layer, 1, |_| with_header(from(PROXY), name, value)).await;
        assert!(victim[0].is_admitted(), "{name}");
        let direct = send(&layer, 1, |_| from("192.0.2.77")).await;
        assert!(direct[0].is_admitted(), "{name}");
    }
}

#[tokio::test]
async fn what_a_client_writes_before_the_proxy_adds_its_address_bans_only_itself() {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy().key(behind_proxies()));
    let hostile = |_| with_header(from(PROXY), "x-forwarded-for", &format!("{VICTIM}, 198.51.100.66"));
    assert!(is_banned(&send(&layer, 100, hostile).await[99]));
    assert!(send(&layer, 1, |_| with_header(from(PROXY), "x-forwarded-for", VICTIM)).await[0].is_admitted());
}

#[tokio::test]
async fn counters_that_clients_share_are_never_banned() {
    // Without the addresses of connections, as a server has it that was set up in haste.
    let layer = RateLimitLayer::new(MemoryStore::new(), policy().key(key::client_ip()));
    let anonymous = send(&layer, 20, |_| Request::new(String::new())).await;
    assert!(!anonymous[19].is_admitted() && !anonymous.iter().any(is_banned));

    let verified = || Policy::new("api", Quota::fixed_window(1, HOUR)).ban(Ban::new(3, HOUR, HOUR).of_verified_keys());
    let by_header = verified().key(key::header("x-api-key")).missing_key(MissingKey::Share);
    let layer = RateLimitLayer::new(MemoryStore::new(), by_header);
    assert!(!send(&layer, 20, |_| Request::new(String::new())).await.iter().any(is_banned));
    let ambiguous = |_| with_header(with_header(Request::new(String::new()), "x-api-key", "one"), "x-api-key", "two");
    assert!(!send(&layer, 20, ambiguous).await.iter().any(is_banned));
    let of_one = send(&layer, 20, |_| with_header(Request::new(String::new()), "x-api-key", "one")).await;
    assert!(is_banned(&of_one[19]));
}

#[tokio::test]
async fn neighbours_of_another_site_are_not_banned_and_those_of_the_same_are() {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy().key(key::client_ip()));
    assert!(is_banned(&send(&layer, 9, |_| from("2001:db8:0:100::1")).await[8]));
    assert!(is_banned(&send(&layer, 1, |_| from("2001:db8:0:1ff::9")).await[0]));
    assert!(send(&layer, 1, |_| from("2001:db8:0:200::1")).await[0].is_admitted());
}

#[tokio::test]
async fn a_banned_client_is_refused_on_every_route_of_the_policy_and_lifted_by_hand() {
    let other = Policy::new("other", Quota::per_minute(1_000)).key(key::client_ip());
    let layer = RateLimitLayer::composite(MemoryStore::new()).policy(other).policy(policy().key(key::client_ip()));
    let sent = send(&layer, 9, |_| from(VICTIM)).await;
    let retry = sent[8].headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap();
    assert!((3_590..=3_600).contains(&retry), "{retry}");
    layer.clone().live().limiter().lift_ban(&Key::new("ip", VICTIM)).await.unwrap();
    let sent = send(&layer, 1, |_| from(VICTIM)).await;
    assert!(!is_banned(&sent[0]) && !sent[0].is_admitted(), "its units are used up");
    layer.clone().live().limiter().reset(&Key::new("ip", VICTIM)).await.unwrap();
    assert!(send(&layer, 1, |_| from(VICTIM)).await[0].is_admitted());
}

#[tokio::test]
async fn made_up_clients_do_not_evict_a_ban() {
    let store = MemoryStore::builder().capacity(1_000).build();
    let layer = RateLimitLayer::new(store, policy().key(key::client_ip()));
    assert!(is_banned(&send(&layer, 9, |_| from(VICTIM)).await[8]));
    let address = |n: usize| format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256);
    let _ = send(&layer, 20_000, |n| from(&address(n))).await;
    assert!(is_banned(&send(&layer, 1, |_| from(VICTIM)).await[0]));
}
