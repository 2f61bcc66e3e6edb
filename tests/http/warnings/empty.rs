//! Layers and limiters without policies: TG006.

use futures::FutureExt;
use tollgate::{Key, Limiter, MemoryStore, Policy, RateLimitLayer, Rule};
use tollgate_config::Config;

use super::{Logged, MANY, app, layer, visit, visit_often};

fn from_file(text: &str) -> RateLimitLayer {
    Config::from_toml(text).expect("a file").layer(MemoryStore::new()).expect("a layer")
}

#[test]
fn a_layer_without_policies_is_one_warning_with_its_first_request() {
    let derived = RateLimitLayer::composite(MemoryStore::new()).log_denials();
    for layer in [layer([]), derived, from_file(""), from_file("[server]\ninstances = 2")] {
        let (logged, app) = (Logged::start(), app(&layer));
        logged.none();
        assert_eq!(visit(&app, "/"), 200);
        logged.only("TG006", &["nothing is limited", "remove_policies"], || visit(&app, "/"));
        assert!(
            layer.clone().live().limiter().check(&Key::new("user", "ada")).now_or_never().expect("at once").is_ok()
        );
        logged.one("TG006", &[]);
    }
}

#[test]
fn each_layer_without_policies_warns_for_itself() {
    let (logged, first) = (Logged::start(), layer([]));
    for layer in [&first, &first.clone(), &first.clone().log_denials()] {
        visit(&app(layer), "/");
    }
    assert_eq!(logged.warnings().len(), 2, "a clone is the same layer");
}

#[test]
fn a_layer_without_policies_that_is_meant_warns_of_nothing() {
    let (removed, emptied) = (layer([]), layer([Policy::new("all", MANY)]));
    removed.clone().live().remove_policies();
    emptied.clone().live().remove_policies();
    for layer in [removed.clone().log_denials(), removed, emptied, from_file("policy = []")] {
        let (logged, app) = (Logged::start(), app(&layer));
        visit_often(&app, "/", 10);
        logged.none();
    }
}

#[test]
fn policies_that_come_before_the_first_request_are_in_time() {
    let layer = layer([]);
    let (logged, app) = (Logged::start(), app(&layer));
    layer.clone().live().replace_policies([Policy::new("all", MANY)]).expect("it works");
    visit_often(&app, "/", 10);
    logged.none();
}

#[test]
fn a_limiter_without_rules_is_one_warning_with_its_first_check() {
    let (logged, none) = (Logged::start(), Limiter::new(MemoryStore::new(), []));
    let some = Limiter::new(MemoryStore::new(), [Rule::new("mail", MANY)]);
    let check = |limiter: &Limiter| limiter.check(&Key::new("user", "ada")).now_or_never().expect("at once").is_ok();
    assert!(check(&some));
    logged.none();
    assert!(check(&none));
    logged.only("TG006", &["a rule to the limiter"], || check(&none));
}
