//! A policy's `client_ip()`: where it has no settings of its own, those of the layer's client are in force.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tollgate::key::{self, ClientIp, KeyExtractor, Lookup};
use tollgate::policy::AccessList;
use tollgate::{Ban, Key, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use crate::rig::{HOUR, Rig, Text, and, expect, from, hello};

const ONE: Quota = Quota::fixed_window(1, HOUR);
const MINUTE: Duration = Duration::from_secs(60);
const ADA: &str = "203.0.113.9";
const BOB: &str = "203.0.113.8";

/// The client of a layer behind proxies.
fn behind() -> ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

/// A request of the proxy for a client.
fn of(client: &str) -> Request<Text> {
    and(from("10.0.0.1"), "x-forwarded-for", client)
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("login", ONE).key(key)
}

fn composite() -> RateLimitLayer {
    Rig::new().layer([])
}

fn shared(key: impl KeyExtractor) -> Arc<dyn KeyExtractor> {
    Arc::new(key)
}

async fn account(of: Lookup) -> Result<Option<Key>, Infallible> {
    Ok(Some(Key::new("account", of.key().as_str())))
}

/// Each way in which a policy may be by the client's address.
fn keys() -> [(&'static str, Policy); 7] {
    let client = key::client_ip;
    [
        ("client_ip", by(client())),
        ("shared in two", by((shared(client()), key::method()))),
        ("inner of three", by((key::method(), (key::path(), client())))),
        ("shared tuple", by(shared((client(), key::method())))),
        ("last of four", by((key::method(), key::path(), key::method(), client()))),
        ("own prefix", by(client().v6_prefix(64))),
        ("the same settings", by((behind(), key::method()))),
    ]
}

/// Each way in which a policy comes to a layer with a client.
fn layers(policy: &Policy) -> [(&'static str, RateLimitLayer); 5] {
    let replaced = composite().policy(Policy::new("old", ONE)).client(behind());
    replaced.clone().live().replace_policies([policy.clone()]).expect("it is valid");
    let first = || composite().policy(policy.clone());
    [
        ("client first", composite().client(behind()).policy(policy.clone())),
        ("policy first", first().client(behind())),
        ("client set again", composite().client(key::client_ip()).policy(policy.clone()).client(behind())),
        ("other policies later", first().client(behind()).global(Quota::per_hour(1_000))),
        ("replaced", replaced),
    ]
}

/// The key by which a layer counts a client.
fn counted(layer: &RateLimitLayer, client: &str) -> String {
    let explained = layer.clone().live().explain(&of(client).into_parts().0);
    let login = explained.policies().iter().find(|one| one.policy() == "login").expect("it is there");
    login.key().expect("it has one").to_string()
}

#[test]
fn clients_behind_the_proxies_of_the_layer_have_a_counter_each() {
    for (key, policy) in keys() {
        let list = |client| AccessList::parse([client]).expect("an address");
        let policy = policy.deny(list("203.0.113.6")).allow(list("203.0.113.7"));
        for (built, layer) in layers(&policy) {
            println!("{key}, {built}");
            let forged = |client| and(from("192.0.2.1"), "x-forwarded-for", client);
            let rows = [(of(ADA), 200), (of(ADA), 429), (of(BOB), 200), (of(BOB), 429)];
            // No proxy of the layer wrote these; and then come those on lists.
            let others = [(forged(ADA), 200), (forged(BOB), 429), (of("203.0.113.6"), 403)];
            let spared = [(); 2].map(|()| (of("203.0.113.7"), 200));
            expect(&hello(&layer), rows.into_iter().chain(others).chain(spared));
        }
    }
    let looked_up = composite().policy(by(key::lookup(key::client_ip(), account))).client(behind());
    for (client, status) in [(ADA, 200), (ADA, 429), (BOB, 200)] {
        let response = tokio_test::block_on(hello(&looked_up).oneshot(of(client))).expect("a response");
        assert_eq!(response.status(), status, "{client}");
    }
    // A service follows a policy that is replaced later.
    let layer = composite().policy(Policy::new("old", ONE)).client(behind());
    let service = hello(&layer);
    layer.live().replace_policies([by(key::client_ip())]).expect("it is valid");
    expect(&service, [(of(ADA), 200), (of(ADA), 429), (of(BOB), 200), (of(BOB), 429)]);
}

#[test]
fn a_prefix_of_its_own_stays_and_that_of_the_layer_holds_where_there_is_none() {
    for (client, own, expected) in [
        (behind(), key::client_ip(), "ip:2001:db8:0:100::/56"),
        (behind(), key::client_ip().v6_prefix(64), "ip:2001:db8:0:1ff::/64"),
        (behind().v6_prefix(48), key::client_ip(), "ip:2001:db8::/48"),
        (behind().v6_prefix(48), behind().v6_prefix(64), "ip:2001:db8:0:1ff::/64"),
        (key::client_ip().v6_prefix(48), behind(), "ip:2001:db8::/48"),
    ] {
        assert_eq!(counted(&composite().policy(by(own)).client(client), "2001:db8:0:1ff::9"), expected);
    }
    let policy = by(key::client_ip());
    let (first, second) = (composite().client(behind()).policy(policy.clone()), composite().policy(policy));
    assert_eq!((counted(&first, ADA), counted(&second, ADA)), ("ip:203.0.113.9".into(), "ip:10.0.0.1".into()));
}

/// A policy that contradicts the client of its layer is an error, however the two come together.
#[track_caller]
fn contradiction(client: &ClientIp, policy: &Policy, what: &str) {
    let replaced = composite().policy(Policy::new("fits", ONE)).client(client.clone());
    for error in [
        composite().client(client.clone()).try_policy(policy.clone()).map(drop),
        composite().policy(policy.clone()).try_client(client.clone()).map(drop),
        replaced.clone().live().replace_policies([policy.clone()]),
    ] {
        let error = error.expect_err("they contradict each other");
        assert!(error.is_invalid() && error.to_string().starts_with("policy \"login\": "), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(format!("{replaced:?}").contains("fits"), "what is in force stays");
}

#[test]
fn settings_that_contradict_those_of_the_layer_are_an_error_when_it_is_built() {
    let (none, own) = (key::client_ip, || key::client_ip().trusted_proxies(["192.0.2.1"]));
    let (proxies, header) = ("trusts other proxies than the client", "reads another header than the client");
    for (client, own, what) in [
        (behind(), own(), proxies),
        (behind(), none().trusted_hops(0), proxies),
        (behind(), none().trusted_unix_socket(), proxies),
        (none().trusted_hops(1), none().trusted_hops(2), proxies),
        (none().trusted_unix_socket(), own(), proxies),
        (behind(), none().forwarded(), header),
        (behind(), behind().header("x-real-ip"), header),
        (behind().forwarded(), none().header("x-real-ip"), header),
        (behind().header("cf-connecting-ip"), behind().header("x-real-ip"), header),
    ] {
        contradiction(&client, &by(own.clone()), what);
        contradiction(&client, &by((key::method(), own)), what);
    }
    let mixed = none().trusted_proxies(["10.128.0.0/9", "10.0.0.0/9", "10.0.0.0/16"]);
    let single = || behind().header("x-real-ip");
    for (client, own) in [
        (behind(), mixed),
        (single(), behind()),
        (single(), none().header("x-real-ip")),
        (behind().forwarded(), none()),
        (behind().trusted_unix_socket(), behind()),
        (none().trusted_hops(2), none().trusted_hops(2)),
        (none().trusted_hops(0), none().trusted_proxies([""; 0])),
        // A layer that trusts nobody, and says nothing of it.
        (none(), single()),
        (none().v6_prefix(64), behind().forwarded()),
    ] {
        let built = composite().policy(by(own.clone())).try_client(client.clone());
        assert!(built.is_ok(), "they say the same: {client:?} {own:?}: {:?}", built.err());
    }
    // Whom a ban refuses is judged by the client: anyone may write the header; and many share a /32.
    let banning = by((none(), key::method())).ban(Ban::new(2, MINUTE, MINUTE));
    contradiction(&none().trusted_hops(1), &banning, "use trusted_proxies");
    contradiction(&behind().v6_prefix(32), &by(none()).ban(Ban::new(2, MINUTE, MINUTE)), "all clients share this key");
}
