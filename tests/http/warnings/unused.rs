//! What is given and limits nothing: TG005, layers and limiters without policies; TG006, a real cost; TG007, slots of a
//! check.

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use tollgate::response::ActualCost;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule};
use tollgate_config::Config;

use super::{Logged, MANY, app, is_quiet, layer, pages, send, to, warns};
use crate::rig::{left, now};

fn from_file(text: &str) -> RateLimitLayer {
    Config::from_toml(text).expect("a file").layer(MemoryStore::new()).expect("a layer")
}

fn ada() -> Key {
    Key::new("user", "ada")
}

#[test]
fn a_layer_without_policies_is_one_warning_unless_it_is_meant() {
    for layer in [layer([]).log_denials(), from_file("[server]\ninstances = 2")] {
        warns(&app(&layer), &[], &to("/"), "TG005", "nothing is limited");
    }
    let (logged, first) = (Logged::start(), layer([]));
    for layer in [&first, &first.clone(), &first.clone().log_denials()] {
        send(&app(layer), to("/"));
    }
    assert_eq!(logged.warnings().len(), 2, "a clone is the same layer");

    let (removed, emptied, filled) = (layer([]), layer([Policy::new("all", MANY)]), layer([]));
    removed.clone().live().remove_policies();
    emptied.clone().live().remove_policies();
    filled.clone().live().replace_policies([Policy::new("all", MANY)]).expect("it works");
    for layer in [removed.clone().log_denials(), removed, emptied, from_file("policy = []"), filled] {
        is_quiet(&app(&layer), &[(to("/"), 200), (to("/"), 200)]);
    }

    let (logged, none) = (Logged::start(), Limiter::new(MemoryStore::new(), []));
    let _ = now(Limiter::new(MemoryStore::new(), [Rule::new("mail", MANY)]).check(&ada()));
    logged.none("it has a rule");
    let check = || assert!(now(none.check(&ada())).is_allowed());
    check();
    logged.only("TG005", "nothing is limited", check);
}

fn with_real_cost() -> Response {
    let mut response = Response::default();
    response.extensions_mut().insert(ActualCost(50));
    response
}

/// A page whose response has a real cost.
fn costly() -> Router {
    Router::new().route("/", get(async || with_real_cost()))
}

#[test]
fn a_real_cost_that_no_policy_charges_is_one_warning() {
    let policies = [Policy::new("api", MANY), Policy::new("other", MANY).cost(2)];
    warns(&costly().layer(layer(policies)), &[], &to("/"), "TG006", "no policy is metered");
    let charge = async |handle: RateLimitHandle| handle.charge(3);
    let (logged, limits) = (Logged::start(), layer([Policy::new("api", MANY)]));
    let app = Router::new().route("/", get(charge)).layer(limits.clone());
    send(&app, to("/"));
    logged.only("TG006", "no policy is metered", || {
        limits.clone().live().replace_policies([Policy::new("api", MANY)]).expect("they are valid");
        send(&app, to("/"));
    });
}

#[test]
fn a_real_cost_that_some_layer_or_a_handler_may_charge_is_no_warning() {
    let metered = || layer([Policy::new("metered", MANY).metered()]);
    let plain = || layer([Policy::new("plain", MANY)]);
    let elsewhere = Policy::new("elsewhere", MANY).metered().routes(["/login"]);
    let checks = |charges: bool| {
        let handler = move |limits: RateLimitHandle| async move {
            let account = Policy::new("account", MANY).metered();
            let checked = limits.check(&account, &Key::new("account", "ada")).await.expect("memory never fails");
            assert!(checked.is_allowed());
            if charges {
                limits.charge(9);
            }
            with_real_cost()
        };
        Router::new().route("/", get(handler))
    };
    for app in [
        costly().layer(metered()),
        costly().layer(plain().policy(Policy::new("metered", MANY).metered())),
        costly().layer(plain().policy(elsewhere)),
        costly().layer(metered()).layer(plain()),
        costly().layer(plain()).layer(metered()),
        costly().layer(metered().without_handle()).layer(plain()),
        costly().layer(plain().without_handle()).layer(metered()),
        pages().layer(plain()),
        checks(false).layer(plain()),
        checks(true).layer(plain()),
    ] {
        is_quiet(&app, &[(to("/"), 200), (to("/"), 200)]);
    }
}

#[test]
fn a_check_that_releases_its_slots_is_one_warning() {
    let slots = || Rule::new("exports", Quota::concurrency(2));
    let (logged, limiter) = (Logged::start(), Limiter::new(MemoryStore::new(), [slots()]));
    // A guard, looks, and a layer, which holds them.
    let acquired = now(limiter.acquire(&ada()));
    assert_eq!((left(&limiter, &ada()), acquired.1.is_empty()), (vec![1], false));
    assert!(now(limiter.check_n(&ada(), 0)).is_allowed());
    drop(acquired);
    assert_eq!(send(&app(&layer([Policy::from(slots())])), to("/")), 200);
    logged.none("nothing is checked");
    let check = || assert!(now(limiter.check(&ada())).is_allowed());
    check();
    logged.only("TG007", "released its slots", check);
    assert_eq!(left(&limiter, &ada()), [2], "each is released at once");
}
