//! Layers that share counters unawares: TG005.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tollgate::shed::FleetShedLayer;
use tollgate::{DenyCache, Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Store, key};
use tower::Layer;

use super::{Logged, app, pages, request, send, visit};

/// Few requests, as for logins.
const FEW: Quota = Quota::per_minute(5);
/// Many requests, with the same algorithm and window.
const API: Quota = Quota::per_minute(100);

fn by_address(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota).key(key::client_ip())
}

fn layer(store: &Arc<dyn Store>, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(Arc::clone(store)).policies(policies)
}

#[test]
fn two_layers_over_one_store_are_one_warning() {
    let memory = MemoryStore::new();
    let cached: Arc<dyn Store> = Arc::new(DenyCache::new(memory.clone()));
    let both: [[Arc<dyn Store>; 2]; 2] = {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        [[Arc::clone(&store), store], [Arc::new(memory), cached]]
    };
    for [of_api, of_login] in both {
        let logged = Logged::start();
        let api = app(&layer(&of_api, [by_address("ip", API), by_address("api", API)]));
        logged.none();
        let login = layer(&of_login, [by_address("ip", FEW), by_address("login", FEW)]);
        let login = app(&login);
        let texts = ["policies=[\"ip\"]", "rename those of one layer", "clones of one Policy"];
        logged.one("TG005", &texts);
        // The limit of logins counts the traffic of the API, which this is about.
        for _ in 0..5 {
            assert_eq!(visit(&api, "/"), 200);
        }
        assert_eq!(visit(&login, "/login"), 429);
        logged.one("TG005", &texts);
    }
}

#[test]
fn each_name_is_warned_of_once_however_many_layers_there_are() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let layers = [(); 3].map(|()| layer(&store, ["a", "b", "c"].map(|name| by_address(name, API))));
    for (place, layer) in layers.iter().enumerate() {
        let _service = layer.layer(pages());
        let _again = layer.clone().layer(pages());
        assert_eq!(logged.warnings().len(), [0, 1, 1][place]);
    }
    assert_eq!(logged.log.count("policies=[\"a\", \"b\", \"c\"]"), 1);
    for other in ["c", "d", "d"] {
        let other = layer(&store, [by_address(other, API)]);
        // As if a layer were made for each request.
        drop(other.layer(pages()));
        let _service = other.layer(pages());
        assert_eq!(logged.warnings().len(), 1);
    }
}

#[test]
fn clones_limiters_and_clones_of_a_policy_share_without_a_warning() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let policy = by_address("ip", API);
    let first = layer(&store, [policy.clone()]);
    let derived = first.clone().log_refusals().policy(by_address("more", API));
    let other = layer(&store, [policy.clone().unadvertised()]);
    for layer in [&first, &first.clone(), &derived, &other] {
        assert_eq!(visit(&app(layer), "/"), 200);
    }
    let address = Key::new("ip", "10.0.0.1");
    let limiter = Limiter::new(Arc::clone(&store), [policy.rule().clone()]);
    for limiter in [first.limiter(), limiter] {
        assert!(limiter.check(&address).now_or_never().is_some_and(|checked| checked.is_ok()));
    }
    logged.none();
}

#[test]
fn fleet_shedders_of_one_name_share_their_slots_without_a_warning() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    for _ in 0..2 {
        let fleet = FleetShedLayer::new(Arc::clone(&store), "fleet", Quota::concurrency(10), 0.2);
        assert_eq!(visit(&pages().layer(fleet), "/"), 200);
    }
    logged.none();
}

#[test]
fn another_window_name_or_store_is_no_warning() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let _first = layer(&store, [by_address("ip", API)]).layer(pages());
    let hour = Duration::from_secs(3_600);
    for other in
        [by_address("api", API), by_address("ip", Quota::per_hour(5)), by_address("ip", Quota::fixed_window(5, hour))]
    {
        let _other = layer(&store, [other]).layer(pages());
    }
    let another: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let _other = layer(&another, [by_address("ip", API)]).layer(pages());
    logged.none();
}

#[test]
fn a_layer_that_is_gone_or_serves_nothing_is_no_warning() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let of = || layer(&store, [by_address("ip", API)]);
    drop(of().layer(pages()));
    let _unused = of();
    let _served = of().layer(pages());
    logged.none();
}

#[test]
fn policies_that_are_replaced_are_compared_too() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let (first, second) = (layer(&store, [by_address("ip", API)]), layer(&store, [by_address("login", FEW)]));
    let (served, login) = (app(&first), app(&second));
    second.replace_policies([by_address("login", API), by_address("ip", FEW)]).expect("they work");
    logged.one("TG005", &["policies=[\"ip\"]"]);
    // What goes on as before is not repeated.
    second.replace_policies([by_address("ip", API)]).expect("it works");
    first.replace_policies([by_address("ip", FEW)]).expect("it works");
    logged.one("TG005", &["policies=[\"ip\"]"]);
    assert_eq!((visit(&served, "/"), send(&login, request("/", &[]))), (200, 200));
}

#[test]
fn layers_of_one_policy_still_share_it_after_both_were_replaced() {
    let (logged, store) = (Logged::start(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let policy = by_address("ip", API);
    let layers = [(); 2].map(|()| layer(&store, [policy.clone()]));
    let _served = layers.each_ref().map(app);
    for layer in &layers {
        layer.replace_policies([by_address("ip", FEW)]).expect("it works");
    }
    logged.none();
}

#[test]
fn a_clone_of_a_policy_that_replaced_another_shares_without_a_warning() {
    let (logged, store) = (Logged::start(), MemoryStore::new());
    let ip = || Policy::new("ip", Quota::per_hour(9)).key(key::client_ip());
    let first = RateLimitLayer::new(store.clone(), ip());
    let _first = pages().layer(first.clone());
    let next = ip();
    first.replace_policies([next.clone()]).expect("it is valid");
    let _second = pages().layer(RateLimitLayer::new(store, next));
    logged.none();
}
