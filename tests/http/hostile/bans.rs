//! Bans provoked for somebody else.

use std::net::{IpAddr, SocketAddr};

use http::Request;
use tollgate::policy::MissingKey;
use tollgate::{Ban, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_test::send;

use super::rig::HOUR;
use crate::rig::{is_banned, with};

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
    request.extensions_mut().insert(SocketAddr::new(address, 4_711));
    request
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
        let hostile = send(&layer, 100, |_| with(from("198.51.100.66"), name, value)).await;
        assert!(is_banned(&hostile[99]), "{name}");
        let victim = send(&layer, 1, |_| with(from(PROXY), name, value)).await;
        assert!(victim[0].is_admitted(), "{name}");
        let direct = send(&layer, 1, |_| from("192.0.2.77")).await;
        assert!(direct[0].is_admitted(), "{name}");
    }
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
    let ambiguous = |_| with(with(Request::new(String::new()), "x-api-key", "one"), "x-api-key", "two");
    assert!(!send(&layer, 20, ambiguous).await.iter().any(is_banned));
    let of_one = send(&layer, 20, |_| with(Request::new(String::new()), "x-api-key", "one")).await;
    assert!(is_banned(&of_one[19]));
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
