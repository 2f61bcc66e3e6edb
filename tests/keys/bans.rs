//! Whom a ban by a key refuses.

use std::convert::Infallible;
use std::time::Duration;

use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo, Lookup};
use tollgate::store::MaybeFuture;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};

const MINUTE: Duration = Duration::from_secs(60);

/// What an error says where clients choose the key, where they may write the header that it is in, and where all share it.
const CLAIMED: &str = "policy \"login\": clients choose this key";
const SPOOFABLE: &str = "use trusted_proxies";
const SHARED: &str = "all clients share this key";

/// An extractor of a user, with what it declares of its keys.
#[derive(Clone)]
struct Declared(KeyInfo);

impl KeyExtractor for Declared {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Missing)
    }

    fn info(&self) -> KeyInfo {
        self.0.clone()
    }
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("login", Quota::per_minute(5)).key(key)
}

#[test]
fn a_policy_whose_clients_could_have_others_banned_is_an_error() {
    let ban = Ban::new(3, MINUTE, MINUTE);
    let networks = || key::client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"]);
    for (policy, part) in vec![
        (by(key::peer_ip()), ""),
        (by(key::client_ip()), ""),
        (by(networks()), ""),
        (by(key::client_ip().trusted_unix_socket()), ""),
        (by(key::client_ip().trusted_hops(1).trusted_unix_socket()), SPOOFABLE),
        (by(networks().header("cf-connecting-ip")), ""),
        (by(networks().v6_prefix(47)), SHARED),
        (by(key::client_ip().trusted_hops(1)), SPOOFABLE),
        (by(key::client_ip().trusted_proxies(["0.0.0.0/0"])), SPOOFABLE),
        // No operator has all of these, so that clients are in there, too.
        (by(key::client_ip().trusted_proxies(["8.0.0.0/7"])), SPOOFABLE),
        (by(key::client_ip().trusted_proxies(["2600::/15"])), SPOOFABLE),
        (by(key::client_ip().trusted_proxies(["2600::/16"])), ""),
        (by(key::extension(|user: &Key| user.clone())), ""),
        (by(|_: &Parts| "acme"), CLAIMED),
        (by(key::header("x-api-key")), CLAIMED),
        (by(key::bearer()), CLAIMED),
        (by(key::cookie("session")), CLAIMED),
        (by(key::lookup(key::peer_ip(), async |of: Lookup| Ok::<_, Infallible>(of.key().clone()))), CLAIMED),
        (by(key::global()), SHARED),
        (by(key::route()), SHARED),
        (by(key::path()), SHARED),
        (by(key::method()), SHARED),
        (by(key::host()), SHARED),
        (by(Declared(KeyInfo::new("device"))), CLAIMED),
        (by(Declared(KeyInfo::new("device").unforgeable())), ""),
        (by(Declared(KeyInfo::new("device").shared())), SHARED),
        (by(Declared(KeyInfo::new("device").unforgeable().shared())), SHARED),
        (by((key::peer_ip(), key::header("x-api-key"))), ""),
        (by((key::route(), key::peer_ip())), ""),
        (by((key::route(), key::header("x-api-key"))), CLAIMED),
        (by((key::route(), key::method())), SHARED),
        (by((key::client_ip().trusted_hops(1), key::peer_ip())), SPOOFABLE),
        (by((key::header("x-api-key"), key::client_ip().trusted_hops(1))), SPOOFABLE),
    ] {
        let built = |ban: Ban| RateLimitLayer::try_new(MemoryStore::new(), policy.clone().ban(ban)).map(drop);
        let told = |ban: Ban| built(ban).map_err(|error| error.to_string());
        let (plain, verified) = (told(ban), told(ban.of_verified_keys()));
        assert_eq!(plain.is_ok(), part.is_empty(), "{policy:?}: {plain:?}");
        assert!(plain.as_ref().map_or_else(String::as_str, |()| "").contains(part), "{policy:?}: {plain:?}");
        assert_eq!(verified.is_ok(), ["", CLAIMED].contains(&part), "{policy:?}: {verified:?}");
        let live = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(5))).live();
        let replaced = live.replace_policies([policy.ban(ban)]);
        assert_eq!(replaced.is_ok(), plain.is_ok(), "it is checked there, too");
    }
}
