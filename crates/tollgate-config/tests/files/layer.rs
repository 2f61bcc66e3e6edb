//! A layer made of a file, and of a newer one.

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use tollgate::policy::AccessList;
use tollgate::test_util::FailingStore;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_config::Config;
use tollgate_test::StoreFn;
use tracing::Level;

use super::policy;
use super::served::send;
use crate::log::Log;

/// Of two clients, the first again, behind proxies.
const TWO_CLIENTS: [&str; 3] = [
    "/ x-forwarded-for:203.0.113.1 @10.0.0.1",
    "/ x-forwarded-for:203.0.113.2 @10.0.0.1",
    "/ x-forwarded-for:203.0.113.1 @10.0.0.2",
];

/// A file with one policy, of one request an hour.
fn policies(lines: &str) -> String {
    policy(&format!("limit = 1\nwindow = \"1h\"\n{lines}"))
}

fn read(file: &str) -> Config {
    Config::from_toml(file).unwrap_or_else(|error| panic!("{error:#}\n{file}"))
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(async || "hello")).layer(layer)
}

#[track_caller]
fn layer(file: &str) -> RateLimitLayer {
    read(file).layer(MemoryStore::new()).unwrap_or_else(|error| panic!("{error:#}\n{file}"))
}

async fn statuses<const N: usize>(app: &Router, requests: [&str; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, request) in statuses.iter_mut().zip(requests) {
        *status = send(app, request).await.status().as_u16();
    }
    statuses
}

/// A store that is unavailable.
fn unavailable() -> FailingStore<MemoryStore> {
    let store = FailingStore::new(MemoryStore::new());
    store.fail();
    store
}

#[tokio::test]
async fn its_policies_limit() {
    let app = app(layer(&policy("limit = 2")));
    assert_eq!(statuses(&app, ["/", "/", "/"]).await, [200, 200, 429]);
}

#[tokio::test]
async fn it_knows_clients_behind_the_proxies_of_the_file_for_policies_added_in_code_too() {
    let file = || layer("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]");
    let one = Quota::per_hour(1);
    for layer in [file().ip(one), file().policy(Policy::new("login", one).key(key::client_ip()))] {
        assert_eq!(statuses(&app(layer), TWO_CLIENTS).await, [200, 200, 429]);
    }
}

#[tokio::test]
async fn without_its_store_it_does_what_the_file_says() {
    for (settings, expected) in [
        ("", [200, 200, 200, 200, 429]),
        ("instances = 2", [200, 200, 429, 429, 429]),
        ("on_failure = \"allow\"", [200; 5]),
        ("on_failure = \"deny\"", [503; 5]),
    ] {
        let file = policy("limit = 4\nalgorithm = \"fixed_window\"\nwindow = \"30d\"") + "[server]\n" + settings;
        let app = app(read(&file).layer(unavailable()).expect("the store supports it"));
        assert_eq!(statuses(&app, ["/"; 5]).await, expected, "{settings}");
    }
}

#[tokio::test]
async fn all_is_admitted_for_no_longer_than_the_file_says() {
    let file = policy("limit = 1\nwindow = \"30d\"") + "[server]\non_failure = \"allow\"\nallow_for = \"1ms\"";
    let (app, start) = (app(read(&file).layer(unavailable()).expect("the store supports it")), Instant::now());
    while statuses(&app, ["/"]).await == [200] {
        assert!(start.elapsed() < Duration::from_secs(10), "it is still admitted");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn what_the_store_does_not_support_is_an_error() {
    let banning = read(&policy("key = \"peer_ip\"\nban = { after = 3, within = \"5m\", duration = \"15m\" }"));
    let without_bans = || StoreFn::new(|_| true);
    let layer = read(&policy("limit = 1")).layer(without_bans()).expect("the store supports it");
    for error in [banning.layer(without_bans()).map(drop), banning.update(&layer.clone().live())] {
        let error = error.expect_err("the store does not support it").to_string();
        assert!(error.contains("\"a\" has a ban, which this store does not have"), "{error}");
    }
    assert!(layer.live().find_policy("a").is_some_and(|policy| policy.quota().limit() == 1), "its policies stay");
}

#[tokio::test]
async fn a_newer_file_replaces_policies_and_whom_they_trust_and_keeps_what_was_used() {
    let config = read(&policy("limit = 2\nkey = \"client_ip\"\nwindow = \"1h\""));
    let layer = config.layer(MemoryStore::new()).expect("the store supports it");
    let app = app(layer.clone());
    assert_eq!(statuses(&app, ["/", "/", "/"]).await, [200, 200, 429]);

    let newer = policy("limit = 3\nkey = \"client_ip\"\nwindow = \"1h\"") + "[server]\ntrusted_hops = 1";
    read(&newer).update(&layer.clone().live()).expect("the store supports it");
    assert_eq!(statuses(&app, ["/", "/"]).await, [200, 429], "two of three were used");
    assert_eq!(statuses(&app, ["/ x-forwarded-for:198.51.100.1"]).await, [200], "the proxy is trusted");

    // Policies of code follow the client of the file, too, and without it they contradict those in use.
    let hops = |number| read(&(policies("key = \"client_ip\"") + &format!("[server]\ntrusted_hops = {number}")));
    let live = layer.clone().live();
    let error = live.replace_policies(hops(2).into_policies()).expect_err("it contradicts").to_string();
    assert!(error.contains("trusts other proxies than the client of the layer"), "{error}");
    hops(2).update(&live).expect("the client is that of the file");
    live.replace_policies(hops(2).into_policies()).expect("the client is that of the file");
    read(&policies("")).update(&live).expect("the store supports it");
    let list = AccessList::parse(["203.0.113.0/24"]).expect("a CIDR");
    let app = self::app(layer.policy(Policy::new("denied", Quota::per_hour(9)).deny(list)));
    assert_eq!(statuses(&app, ["/ x-forwarded-for:1.1.1.1 @203.0.113.9"]).await, [403], "no proxy is trusted any more");
}

#[test]
fn settings_that_stay_are_named_in_one_warning() {
    let file = |settings: &str| read(&format!("{}[server]\n{settings}", policy("limit = 1")));
    let of_two = "on_failure = \"allow\"\nallow_for = \"5s\"\ninstances = 2";
    let allows = "on_failure = \"allow\"";
    for (layer, settings, named) in [
        (of_two, "on_failure = \"allow\"\nallow_for = \"5s\"\ninstances = 2\ntrusted_hops = 1", None),
        (of_two, "on_failure = \"allow\"\nallow_for = \"5s\"\ninstances = 3", Some(r#"["instances"]"#)),
        (of_two, "", Some(r#"["on_failure", "allow_for", "instances"]"#)),
        ("", "on_failure = \"fallback\"\ninstances = 1", None),
        (allows, "on_failure = \"allow\"\nallow_for = \"60s\"", None),
        (allows, "on_failure = \"allow\"\nallow_for = \"1m 30s\"", Some(r#"["allow_for"]"#)),
        ("on_failure = \"allow\"\nallow_for = \"90s\"", "on_failure = \"allow\"\nallow_for = \"1m 30s\"", None),
    ] {
        let layer = file(layer).layer(MemoryStore::new()).expect("the store supports it").live();
        // They are compared with the layer, and not with the file before.
        for _ in 0..2 {
            let log = Log::default();
            let noting = log.note(Level::INFO);
            file(settings).update(&layer).expect("the store supports it");
            drop(noting);
            let told = named.map(|named| format!("code=\"settings_stay\" settings={named}"));
            let lines = told.map_or(0, |told| log.count(&told));
            assert_eq!([log.count(""), lines], [usize::from(named.is_some()); 2], "{settings}: {}", log.text());
        }
    }
}

/// The policy of the file without a header `x-free`, and one of the application.
fn complete(policies: Vec<Policy>) -> Vec<Policy> {
    let complete = |policy: Policy| policy.when(|parts| !parts.headers.contains_key("x-free"));
    let added = Policy::new("added", Quota::per_hour(3));
    policies.into_iter().map(complete).chain([added]).collect()
}

#[tokio::test]
async fn policies_completed_and_added_stay_over_an_update_and_those_of_the_layer_alone_go() {
    let file = |limit| read(&policy(&format!("limit = {limit}\nwindow = \"1h\"")));
    let layer = file(1).with_policies(complete).layer(MemoryStore::new()).expect("the store supports it");
    let layer = layer.policy(Policy::new("alone", Quota::per_hour(9)));
    let app = app(layer.clone());
    assert_eq!(statuses(&app, ["/", "/", "/ x-free:1"]).await, [200, 429, 200], "two of three of the added one");
    let layer = layer.live();
    for limit in [2, 1] {
        file(limit).with_policies(complete).update(&layer).expect("the store supports it");
        assert!(layer.find_policy("added").is_some() && layer.find_policy("alone").is_none());
    }
    assert_eq!(statuses(&app, ["/", "/ x-free:1", "/ x-free:1"]).await, [429, 200, 429]);
}

#[test]
fn policies_of_one_name_in_the_file_and_in_code_are_an_error() {
    let config = read(&policy("name = \"added\"\nlimit = 1")).with_policies(complete);
    let layer = layer(&policies(""));
    for error in [config.layer(MemoryStore::new()).map(drop), config.update(&layer.clone().live())] {
        let error = error.expect_err("their counters would be one").to_string();
        assert!(error.contains("the name \"added\" is given to two policies"), "{error}");
    }
}

#[tokio::test]
async fn an_emptied_file_is_refused_and_an_empty_list_of_policies_is_not() {
    let layer = layer(&policy("limit = 1\nwindow = \"1h\""));
    let app = app(layer.clone());
    assert_eq!(statuses(&app, ["/", "/"]).await, [200, 429]);
    let layer = layer.live();
    let emptied = ["", "# [[policy]]", "[server]\ninstances = 2"].map(read);
    for emptied in emptied.into_iter().chain([read(&policies("")).with_policies(|_| Vec::new())]) {
        let error = emptied.update(&layer).expect_err("nothing would be limited").to_string();
        assert!(error.contains("no policies in place of 1"), "{error}");
        assert_eq!(statuses(&app, ["/"]).await, [429]);
    }
    read("policy = []").update(&layer).expect("it is meant");
    assert_eq!(statuses(&app, ["/"]).await, [200]);
}
