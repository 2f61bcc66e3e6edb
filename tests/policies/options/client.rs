//! A policy's `client_ip()`: where it has no settings of its own, those of the layer's client are in force.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tollgate::key::{self, ClientIp, KeyExtractor, Lookup};
use tollgate::policy::AccessList;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use super::rig::{HOUR, Rig, Text, and, expect, from, hello, now, statuses};

const ONE: Quota = Quota::fixed_window(1, HOUR);
const MINUTE: Duration = Duration::from_secs(60);
const PROXY: &str = "10.0.0.1";
const ADA: &str = "203.0.113.9";
const BOB: &str = "203.0.113.8";

/// The client of a layer behind proxies.
fn behind() -> ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

/// A request of the proxy for a client.
fn of(client: &str) -> http::Request<Text> {
    and(from(PROXY), "x-forwarded-for", client)
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("login", ONE).key(key)
}

fn composite() -> RateLimitLayer {
    Rig::memory().layer([])
}

async fn account(of: Lookup) -> Result<Option<Key>, Infallible> {
    Ok(Some(Key::new("account", of.key().as_str())))
}

/// A key by the client's address, and the policy by it.
type Row = (&'static str, Box<dyn Fn() -> Policy>);

/// Each way in which a policy may be by the client's address.
fn keys() -> [Row; 10] {
    [
        ("client_ip", Box::new(|| by(key::client_ip()))),
        ("shared", Box::new(|| by(Arc::new(key::client_ip()) as Arc<dyn KeyExtractor>))),
        ("shared in two", Box::new(|| by((Arc::new(key::client_ip()) as Arc<dyn KeyExtractor>, key::method())))),
        ("first of two", Box::new(|| by((key::client_ip(), key::method())))),
        ("inner of three", Box::new(|| by((key::method(), (key::path(), key::client_ip()))))),
        ("shared tuple", Box::new(|| by(Arc::new((key::client_ip(), key::method())) as Arc<dyn KeyExtractor>))),
        ("last of four", Box::new(|| by((key::method(), key::path(), key::method(), key::client_ip())))),
        ("looked up", Box::new(|| by(key::lookup(key::client_ip(), account)))),
        ("own prefix", Box::new(|| by(key::client_ip().v6_prefix(64)))),
        ("the same settings", Box::new(|| by((behind(), key::method())))),
    ]
}

/// Each way in which a policy comes to a layer with a client.
fn layers(policy: &dyn Fn() -> Policy) -> [(&'static str, RateLimitLayer); 5] {
    let replaced = composite().policy(Policy::new("old", ONE)).client(behind());
    replaced.clone().live().replace_policies([policy()]).expect("it is valid");
    [
        ("client first", composite().client(behind()).policy(policy())),
        ("policy first", composite().policy(policy()).client(behind())),
        ("client set again", composite().client(key::client_ip()).policy(policy()).client(behind())),
        ("other policies later", composite().client(behind()).policy(policy()).global(Quota::per_hour(1_000))),
        ("replaced", replaced),
    ]
}

#[tokio::test]
async fn clients_behind_the_proxies_of_the_layer_have_a_counter_each() {
    for (key, policy) in keys() {
        for (built, layer) in layers(&*policy) {
            let statuses = statuses(&hello(&layer), [ADA, ADA, BOB, BOB].map(of)).await;
            assert_eq!(statuses, [200, 429, 200, 429], "{key}, {built}");
        }
    }
}

#[tokio::test]
async fn a_header_from_no_proxy_of_the_layer_counts_for_no_policy() {
    for (key, policy) in keys() {
        for (built, layer) in layers(&*policy) {
            let forged = [ADA, BOB].map(|client| and(from("192.0.2.1"), "x-forwarded-for", client));
            assert_eq!(statuses(&hello(&layer), forged).await, [200, 429], "{key}, {built}");
        }
    }
}

#[test]
fn a_service_follows_a_policy_that_is_replaced_later() {
    let layer = composite().policy(Policy::new("old", ONE)).client(behind());
    let service = hello(&layer);
    layer.clone().live().replace_policies([by(key::client_ip())]).expect("it is valid");
    for (client, status) in [(ADA, 200), (ADA, 429), (BOB, 200), (BOB, 429)] {
        expect(&service, of(client), status);
    }
}

#[test]
fn a_ban_refuses_the_client_and_not_the_proxy() {
    let ban = Ban::new(2, MINUTE, 10 * MINUTE);
    let policy = || by(key::client_ip()).ban(ban);
    for (built, layer) in layers(&policy) {
        let service = hello(&layer);
        for status in [200, 429, 429, 429] {
            expect(&service, of(ADA), status);
        }
        let explained = layer.clone().live().explain(&of(ADA).into_parts().0);
        let of_login = explained.policies().iter().find(|one| one.policy() == "login").expect("it is there");
        assert_eq!(of_login.key().map(Key::as_str), Some("ip:203.0.113.9"), "{built}");
        expect(&service, of(BOB), 200);
    }
}

#[test]
fn lists_see_the_client_of_the_layer_whatever_part_of_a_key_it_is() {
    for (key, policy) in keys() {
        let list = |client| AccessList::parse([client]).expect("an address");
        for (built, layer) in layers(&|| policy().deny(list(ADA)).allow(list("203.0.113.7"))) {
            let service = hello(&layer);
            let statuses = [(ADA, 403), ("203.0.113.7", 200), ("203.0.113.7", 200)];
            for (client, status) in statuses {
                let response = now(&service, of(client)).status().as_u16();
                assert_eq!(response, status, "{key}, {built}: {client}");
            }
        }
    }
}

#[tokio::test]
async fn the_status_document_is_of_the_client() {
    for (built, layer) in layers(&|| by(key::client_ip())) {
        expect(&hello(&layer), of(ADA), 200);
        let status = layer.clone().live().status_service().expect("an address is proven");
        let remaining = async |client| {
            let body = status.clone().oneshot(of(client)).await.expect("a response").into_body();
            let text = String::from_utf8(body.collect().await.expect("a body").to_bytes().into()).expect("text");
            let (_, after) = text.split_once(r#""remaining":"#).unwrap_or_else(|| panic!("{text}"));
            after.chars().next().expect("a number")
        };
        assert_eq!((remaining(ADA).await, remaining(BOB).await), ('0', '1'), "{built}");
    }
}

#[test]
fn a_prefix_of_its_own_stays_and_that_of_the_layer_holds_where_there_is_none() {
    for (layer, own, expected) in [
        (behind(), key::client_ip(), "ip:2001:db8:0:100::/56"),
        (behind(), key::client_ip().v6_prefix(64), "ip:2001:db8:0:1ff::/64"),
        (behind().v6_prefix(48), key::client_ip(), "ip:2001:db8::/48"),
        (behind().v6_prefix(48), key::client_ip().v6_prefix(64), "ip:2001:db8:0:1ff::/64"),
        (behind().v6_prefix(48), behind().v6_prefix(64), "ip:2001:db8:0:1ff::/64"),
        (key::client_ip().v6_prefix(48), behind(), "ip:2001:db8::/48"),
    ] {
        let layer = composite().policy(by(own)).client(layer);
        let explained = layer.clone().live().explain(&of("2001:db8:0:1ff::9").into_parts().0);
        assert_eq!(explained.policies()[0].key().map(Key::as_str), Some(expected));
    }
}

#[test]
fn settings_that_say_the_same_or_that_only_one_of_them_has_are_no_contradiction() {
    let mixed = key::client_ip().trusted_proxies(["10.128.0.0/9", "10.0.0.0/9", "10.0.0.0/16"]);
    let single = || behind().header("x-real-ip");
    for (layer, own) in [
        (behind(), mixed),
        (single(), single()),
        (single(), behind()),
        (single(), key::client_ip().header("x-real-ip")),
        (behind().forwarded(), key::client_ip()),
        (behind().trusted_unix_socket(), behind()),
        (behind().trusted_unix_socket(), key::client_ip().trusted_unix_socket()),
        (key::client_ip().trusted_hops(2), key::client_ip().trusted_hops(2)),
        (key::client_ip().trusted_hops(0), key::client_ip().trusted_proxies([""; 0])),
        // A layer that trusts nobody, and says nothing of it.
        (key::client_ip(), single()),
        (key::client_ip().v6_prefix(64), behind().forwarded()),
        (key::client_ip().header("x-real-ip"), behind()),
    ] {
        let built = composite().policy(by(own.clone())).try_client(layer.clone());
        assert!(built.is_ok(), "{layer:?} {own:?}: {:?}", built.err());
    }
}

/// The key of a policy that contradicts the client of its layer is an error, however the two come together.
#[track_caller]
fn contradiction(client: &ClientIp, own: &ClientIp, what: &str) {
    for (name, policy) in [("alone", by(own.clone())), ("joined", by((key::method(), own.clone())))] {
        let fits = || Policy::new("fits", ONE);
        let replaced = composite().policy(fits()).client(client.clone());
        let errors = [
            composite().client(client.clone()).try_policy(policy.clone()).map(drop),
            composite().policy(policy.clone()).try_client(client.clone()).map(drop),
            replaced.clone().live().replace_policies([policy.clone()]),
        ];
        for error in errors {
            let error = error.expect_err(name);
            assert!(error.is_invalid() && error.to_string().starts_with("policy \"login\": "), "{error}");
            assert!(error.to_string().contains(what), "{name}: {error}");
        }
        assert_eq!(
            replaced.clone().live().explain(&of(ADA).into_parts().0).policies()[0].policy(),
            "fits",
            "it stays in force"
        );
        let panics: [Box<dyn FnOnce() -> RateLimitLayer>; 2] = [
            Box::new(|| composite().client(client.clone()).policy(policy.clone())),
            Box::new(|| composite().policy(policy.clone()).client(client.clone())),
        ];
        for panics in panics {
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err(), "{name}");
        }
    }
}

#[test]
fn settings_that_contradict_those_of_the_layer_are_an_error_when_it_is_built() {
    let (none, own) = (key::client_ip, || key::client_ip().trusted_proxies(["192.0.2.1"]));
    for (client, own) in [
        (behind(), own()),
        (behind(), none().trusted_hops(1)),
        (behind(), none().trusted_hops(0)),
        (behind(), none().trusted_unix_socket()),
        (none().trusted_hops(1), none().trusted_hops(2)),
        (none().trusted_hops(0), own()),
        (none().trusted_unix_socket(), own()),
    ] {
        contradiction(&client, &own, "trusts other proxies than the client of the layer");
    }
    for (client, own) in [
        (behind(), none().forwarded()),
        (behind(), behind().header("x-real-ip")),
        (behind().forwarded(), none().header("x-real-ip")),
        (behind().header("cf-connecting-ip"), behind().header("x-real-ip")),
    ] {
        contradiction(&client, &own, "reads another header than the client of the layer");
    }
}

#[test]
fn whom_a_ban_refuses_is_judged_by_the_client_of_the_layer() {
    let banning = || by((key::client_ip(), key::method())).ban(Ban::new(2, MINUTE, MINUTE));
    let hops = || key::client_ip().trusted_hops(1);
    let errors = [
        composite().client(hops()).try_policy(banning()).map(drop),
        composite().policy(banning()).try_client(hops()).map(drop),
        composite().policy(Policy::new("old", ONE)).client(hops()).live().replace_policies([banning()]),
    ];
    for error in errors {
        let error = error.expect_err("anyone may write the header").to_string();
        assert!(error.contains("give trusted_proxies"), "{error}");
    }
    let networks = behind().v6_prefix(32);
    let error = composite().policy(by(key::client_ip()).ban(Ban::new(2, MINUTE, MINUTE))).try_client(networks);
    assert!(error.expect_err("many share a /32").to_string().contains("all clients share this key"));
}

#[test]
fn one_policy_follows_the_client_of_each_layer_that_has_it() {
    let policy = by(key::client_ip());
    let first = RateLimitLayer::composite(MemoryStore::new()).client(behind()).policy(policy.clone());
    let second = RateLimitLayer::new(MemoryStore::new(), policy);
    let key = |layer: &RateLimitLayer| {
        layer.clone().live().explain(&of(ADA).into_parts().0).policies()[0].key().expect("it has one").to_string()
    };
    assert_eq!((key(&first), key(&second)), ("ip:203.0.113.9".into(), "ip:10.0.0.1".into()));
}
