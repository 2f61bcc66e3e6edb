//! What is given and limits nothing: TG007, a real cost; TG008, slots of a check.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use futures::FutureExt;
use tollgate::response::ActualCost;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, Rule};

use super::{Logged, MANY, app, layer, pages, visit, visit_often};

fn by_global(name: &str) -> Policy {
    Policy::new(name, MANY)
}

/// A page whose response has a real cost.
fn costly() -> Router {
    let page = || async {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(ActualCost(50));
        response
    };
    Router::new().route("/", get(page))
}

#[test]
fn a_real_cost_that_no_policy_charges_is_one_warning() {
    let logged = Logged::start();
    let app = costly().layer(layer([by_global("api"), by_global("other").cost(2)]));
    assert_eq!(visit(&app, "/"), 200);
    logged.only("TG007", &["metered()", "metered = true"], || visit(&app, "/"));
}

#[test]
fn units_that_a_handler_charges_to_no_policy_are_one_warning_however_often_policies_are_replaced() {
    let (logged, limits) = (Logged::start(), layer([by_global("api")]));
    let charge = async |handle: RateLimitHandle| {
        handle.charge(3);
        handle.refund(1);
    };
    let app = Router::new().route("/", get(charge)).layer(limits.clone());
    for _ in 0..10 {
        assert_eq!(visit(&app, "/"), 200);
        limits.clone().live().replace_policies([by_global("api")]).expect("they are valid");
    }
    logged.only("TG007", &["a RateLimitHandle charged", "metered()"], || visit(&app, "/"));
}

#[test]
fn a_real_cost_that_some_layer_may_charge_is_no_warning() {
    let (metered, plain) = (by_global("metered").metered(), by_global("plain"));
    let elsewhere = by_global("elsewhere").metered().routes(["/login"]);
    let logged = Logged::start();
    for app in [
        costly().layer(layer([metered.clone()])),
        costly().layer(layer([plain.clone(), metered.clone()])),
        costly().layer(layer([plain.clone(), elsewhere.clone()])),
        costly().layer(layer([metered.clone()])).layer(layer([plain.clone()])),
        costly().layer(layer([plain.clone()])).layer(layer([metered.clone()])),
        costly().layer(layer([metered.clone()]).without_handle()).layer(layer([plain.clone()])),
        costly().layer(layer([plain.clone()]).without_handle()).layer(layer([metered.clone()])),
        pages().layer(layer([plain])),
    ] {
        visit_often(&app, "/", 3);
    }
    assert!(logged.warnings().iter().all(|line| !line.contains("TG007")), "{:#?}", logged.warnings());
}

#[test]
fn a_check_that_releases_its_slots_is_one_warning() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("exports", Quota::concurrency(2))]);
    let (logged, ada) = (Logged::start(), Key::new("user", "ada"));
    let is_allowed = |decision: Result<tollgate::Decision, tollgate::Error>| decision.is_ok_and(|it| it.is_allowed());
    // A guard, and looks.
    let acquired = limiter.acquire(&ada).now_or_never().expect("at once").expect("memory decides");
    assert!(is_allowed(limiter.peek(&ada).now_or_never().expect("at once")));
    assert!(is_allowed(limiter.check_n(&ada, 0).now_or_never().expect("at once")));
    drop(acquired);
    logged.none();
    let check = || assert!(is_allowed(limiter.check(&ada).now_or_never().expect("at once")));
    check();
    logged.only("TG008", &["Limiter::acquire"], check);
}

#[test]
fn a_layer_holds_slots_and_its_limiter_may_check_other_quotas() {
    let held = layer([Policy::new("exports", Quota::concurrency(2))]);
    let (logged, app) = (Logged::start(), app(&held));
    visit_often(&app, "/", 10);
    let rates = Limiter::new(MemoryStore::new(), [Rule::new("mail", MANY)]);
    assert!(rates.check(&Key::new("user", "ada")).now_or_never().expect("at once").is_ok());
    logged.none();
}
