//! Bans provoked for somebody else.

use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use tollgate::policy::MissingKey;
use tollgate::{Ban, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_test::send;

use super::heads::from;
use crate::rig::{is_banned, with};

const HOUR: Duration = Duration::from_secs(3_600);
const VICTIM: &str = "203.0.113.9";
const PROXY: &str = "10.0.0.7";

/// One request an hour; after three refusals banned for an hour.
fn policy() -> Policy {
    Policy::new("login", Quota::fixed_window(1, HOUR)).ban(Ban::new(3, HOUR, HOUR))
}

fn behind_proxies() -> key::ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

fn of(peer: &str) -> Request<String> {
    from(peer.parse::<IpAddr>().expect("an address"), "/")
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
        let hostile = send(&layer, 100, |_| with(of("198.51.100.66"), name, value)).await;
        assert!(is_banned(&hostile[99]), "{name}");
        let victim = send(&layer, 1, |_| with(of(PROXY), name, value)).await;
        assert!(victim[0].is_allowed(), "{name}");
        let direct = send(&layer, 1, |_| of("192.0.2.77")).await;
        assert!(direct[0].is_allowed(), "{name}");
    }
}

#[tokio::test]
async fn counters_that_clients_share_are_never_banned() {
    // Without the addresses of connections, as a server has it that was set up in haste.
    let layer = RateLimitLayer::new(MemoryStore::new(), policy().key(key::client_ip()));
    assert!(!send(&layer, 20, |_| Request::new(String::new())).await.iter().any(is_banned));
    let verified = Policy::new("api", Quota::fixed_window(1, HOUR)).ban(Ban::new(3, HOUR, HOUR).of_verified_keys());
    let by_header = verified.key(key::header("x-api-key")).missing_key(MissingKey::Share);
    let layer = RateLimitLayer::new(MemoryStore::new(), by_header);
    for (keys, is_ever_banned) in [(&[][..], false), (&["one", "two"], false), (&["one"], true)] {
        let request = |_| keys.iter().fold(Request::new(String::new()), |all, key| with(all, "x-api-key", key));
        assert_eq!(send(&layer, 20, request).await.iter().any(is_banned), is_ever_banned, "{keys:?}");
    }
}
