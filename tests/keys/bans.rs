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

use Bannable::{Claimed, Client, Shared, Spoofable};

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
        row("PeerIp", key::peer_ip(), Client),
        row("ClientIp", key::client_ip(), Client),
        row("ClientIp", networks(), Client),
        row("ClientIp", key::client_ip().trusted_unix_socket(), Client),
        row("ClientIp", key::client_ip().trusted_hops(1).trusted_unix_socket(), Spoofable),
        row("ClientIp", networks().header("cf-connecting-ip"), Client),
        row("ClientIp", networks().v6_prefix(47), Shared),
        row("ClientIp", key::client_ip().trusted_hops(1), Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["0.0.0.0/0"]), Spoofable),
        // No operator has all of these, so that clients are in there, too.
        row("ClientIp", key::client_ip().trusted_proxies(["8.0.0.0/7"]), Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["2600::/15"]), Spoofable),
        row("ClientIp", key::client_ip().trusted_proxies(["2600::/16"]), Client),
        row("Extension", key::extension(|user: &Key| user.clone()), Client),
        row("F", tenant, Claimed),
        row("ValueKey", key::header("x-api-key"), Claimed),
        row("Bearer", key::bearer(), Claimed),
        row("ValueKey", key::cookie("session"), Claimed),
        row("KeyLookup", key::lookup(key::peer_ip(), found), Claimed),
        row("Global", key::global(), Shared),
        row("Route", key::route(), Shared),
        row("Path", key::path(), Shared),
        row("Method", key::method(), Shared),
        row("Host", key::host(), Shared),
        row("Declared", Declared(KeyInfo::new("device")), Claimed),
        row("Declared", Declared(KeyInfo::new("device").unforgeable()), Client),
        row("Declared", Declared(KeyInfo::new("device").shared()), Shared),
        row("Declared", Declared(KeyInfo::new("device").unforgeable().shared()), Shared),
        row("Joined", (key::peer_ip(), key::header("x-api-key")), Client),
        row("Joined", (key::route(), key::peer_ip()), Client),
        row("Joined", (key::route(), key::header("x-api-key")), Claimed),
        row("Joined", (key::route(), key::method()), Shared),
        row("Joined", (key::client_ip().trusted_hops(1), key::peer_ip()), Spoofable),
        row("Joined", (key::header("x-api-key"), key::client_ip().trusted_hops(1)), Spoofable),
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
        let policy = |ban: Ban| with_key(Policy::new("login", Quota::per_minute(5)).ban(ban));
        let built = |ban: Ban| {
            let layer = RateLimitLayer::try_new(MemoryStore::new(), policy(ban)).map(drop);
            layer.map_err(|error| error.to_string())
        };
        let (plain, verified) = (built(ban), built(ban.of_verified_keys()));
        let part = match bannable {
            Client => None,
            Claimed => Some("policy \"login\": clients choose this key"),
            Spoofable => Some("give trusted_proxies"),
            Shared => Some("all clients share this key"),
        };
        let told = plain.as_ref().err().map_or("", String::as_str);
        assert_eq!(plain.is_ok(), part.is_none(), "{name}: {plain:?}");
        assert!(told.contains(part.unwrap_or_default()), "{name}: {told}");
        assert_eq!(verified.is_ok(), matches!(bannable, Client | Claimed), "{name}: {verified:?}");
        let live = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(5))).live();
        assert_eq!(live.replace_policies([policy(ban)]).is_ok(), part.is_none(), "{name}: it is checked there, too");
    }
}
