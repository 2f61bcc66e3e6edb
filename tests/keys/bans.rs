//! Whom a ban by a key refuses.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo, Lookup};
use tollgate::store::MaybeFuture;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};

const MINUTE: Duration = Duration::from_secs(60);

async fn found(of: Lookup) -> Result<Option<Key>, Infallible> {
    Ok(Some(of.key().clone()))
}

fn tenant(_: &Parts) -> &'static str {
    "acme"
}

/// Whom a ban by a key refuses: the client, or perhaps others, as clients choose the key or write the header that it is
/// in; or all clients, which share it.
enum Bannable {
    Client,
    Claimed,
    Spoofable,
    Shared,
}

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

/// The name of an extractor's type, how it is given to a policy, and whom a ban refuses.
type Row = (&'static str, Box<dyn Fn(Policy) -> Policy>, Bannable);

/// Each kind of extractor.
fn each() -> Vec<Row> {
    fn row(name: &'static str, extractor: impl KeyExtractor + Clone, expected: Bannable) -> Row {
        (name, Box::new(move |policy| policy.key(extractor.clone())), expected)
    }
    let networks = || key::client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"]);
    vec![
        row("PeerIp", key::peer_ip(), Bannable::Client),
        row("PeerIp", key::peer_ip().v6_prefix(32), Bannable::Shared),
        row("ClientIp", key::client_ip(), Bannable::Client),
        row("ClientIp", networks(), Bannable::Client),
        row("ClientIp", networks().forwarded(), Bannable::Client),
        row("ClientIp", key::client_ip().trusted_unix_socket(), Bannable::Client),
        row("ClientIp", key::client_ip().trusted_hops(1).trusted_unix_socket(), Bannable::Spoofable),
        row("ClientIp", networks().header("cf-connecting-ip"), Bannable::Client),
        row("ClientIp", networks().v6_prefix(47), Bannable::Shared),
        row("ClientIp", key::client_ip().trusted_hops(0), Bannable::Client),
        row("ClientIp", key::client_ip().trusted_hops(1), Bannable::Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["0.0.0.0/0"]), Bannable::Spoofable),
        // No operator has all of these, so that clients are in there, too.
        row("ClientIp", key::client_ip().trusted_proxies(["8.0.0.0/7"]), Bannable::Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["2600::/15"]), Bannable::Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["2600::/16"]), Bannable::Client),
        row("Extension", key::extension(|user: &Key| user.clone()), Bannable::Client),
        row("F", tenant, Bannable::Claimed),
        row("ValueKey", key::header("x-api-key"), Bannable::Claimed),
        row("Bearer", key::bearer(), Bannable::Claimed),
        row("ValueKey", key::cookie("session"), Bannable::Claimed),
        row("ValueKey", key::basic_user(), Bannable::Claimed),
        row("ValueKey", key::query("user"), Bannable::Claimed),
        row("ValueKey", key::path_param("user"), Bannable::Claimed),
        row("KeyLookup", key::lookup(key::peer_ip(), found), Bannable::Claimed),
        row("Global", key::global(), Bannable::Shared),
        row("Route", key::route(), Bannable::Shared),
        row("Path", key::path(), Bannable::Shared),
        row("Method", key::method(), Bannable::Shared),
        row("Host", key::host(), Bannable::Shared),
        row("Declared", Declared(KeyInfo::new("device")), Bannable::Claimed),
        row("Declared", Declared(KeyInfo::new("device").unforgeable()), Bannable::Client),
        row("Declared", Declared(KeyInfo::new("device").shared()), Bannable::Shared),
        row("Declared", Declared(KeyInfo::new("device").shared().unforgeable()), Bannable::Shared),
        row("Declared", Declared(KeyInfo::new("device").unforgeable().shared()), Bannable::Shared),
        row("Joined", (key::peer_ip(), key::header("x-api-key")), Bannable::Client),
        row("Joined", (key::route(), key::peer_ip()), Bannable::Client),
        row("Joined", (key::route(), key::header("x-api-key")), Bannable::Claimed),
        row("Joined", (key::route(), key::method()), Bannable::Shared),
        row("Joined", (key::client_ip().trusted_hops(1), key::peer_ip()), Bannable::Spoofable),
        row("Joined", (key::header("x-api-key"), key::client_ip().trusted_hops(1)), Bannable::Spoofable),
    ]
}

#[test]
fn every_extractor_says_whom_a_ban_refuses() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/http/key");
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the crate has keys") {
        let text = fs::read_to_string(entry.expect("it can be read").path()).expect("it is text");
        let lines = text.lines().filter(|line| !line.starts_with("//")).map(|line| line.trim_end_matches(" {"));
        named.extend(lines.filter_map(|line| line.split_once("KeyExtractor for ")).map(|(_, name)| name.to_owned()));
    }
    for passing_on in ["Arc<dyn KeyExtractor>", "($($part),+)"] {
        assert!(named.remove(passing_on), "it passes the question on");
    }
    let known = each().into_iter().map(|(name, ..)| name.to_owned()).filter(|name| name != "Declared").collect();
    assert_eq!(named, known);
}

#[test]
fn a_policy_whose_clients_could_have_others_banned_is_an_error() {
    let ban = Ban::new(3, MINUTE, MINUTE);
    for (name, with_key, bannable) in each() {
        let built = |ban: Ban| {
            let policy = with_key(Policy::new("login", Quota::per_minute(5)).ban(ban));
            RateLimitLayer::try_new(MemoryStore::new(), policy).map(drop).map_err(|error| error.to_string())
        };
        let (plain, verified) = (built(ban), built(ban.of_verified_keys()));
        match bannable {
            Bannable::Client => assert!(plain.is_ok() && verified.is_ok(), "{name}: {plain:?}"),
            Bannable::Claimed => {
                let error = plain.expect_err(name);
                assert!(error.starts_with("policy \"login\": clients choose this key"), "{name}: {error}");
                assert!(error.contains("by a tuple of client_ip() and this key"), "{name}: {error}");
                assert!(verified.is_ok(), "{name}: {verified:?}");
            }
            Bannable::Spoofable => {
                assert_eq!(plain, verified, "{name}");
                assert!(plain.expect_err(name).contains("give trusted_proxies"), "{name}");
            }
            Bannable::Shared => {
                assert_eq!(plain, verified, "{name}");
                assert!(plain.expect_err(name).contains("all clients share this key"), "{name}");
            }
        }
    }
}

#[test]
fn a_replaced_policy_is_checked_too() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(5)));
    let ban = Ban::new(3, MINUTE, MINUTE);
    let spoofable = Policy::new("api", Quota::per_minute(5)).key(key::client_ip().trusted_hops(1)).ban(ban);
    assert!(layer.clone().live().replace_policies([spoofable]).is_err());
    let policy = Policy::new("api", Quota::per_minute(5)).key(key::client_ip()).ban(ban);
    assert!(layer.clone().live().replace_policies([policy]).is_ok());
}
