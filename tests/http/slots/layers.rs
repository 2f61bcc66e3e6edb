//! Slots beside other policies: in nested layers, replaced policies, tiers, and options that make no sense.

use http::{Response, StatusCode};
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key};
use tower::Layer;

use super::rig::{TWO, around, feeding, full, left, left_of, send_fed, streams};
use crate::rig::{self, hello, of};

#[test]
fn each_of_nested_layers_holds_its_slots_until_the_body_ends() {
    let (outer, inner) = (streams(TWO), streams(Quota::concurrency(1)));
    let nested = outer.layer(inner.layer(hello()));
    let response = rig::send(&nested, rig::request());
    assert_eq!((left(&outer), left(&inner)), (1, 0));
    let refused = rig::send(&nested, rig::request());
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The refusal of the inner layer is a response like others to the outer one.
    assert_eq!(left(&outer), 0);
    drop(refused);
    assert_eq!(left(&outer), 1);
    drop(response);
    assert_eq!((left(&outer), left(&inner)), (2, 1));
}

#[test]
fn a_policy_in_shadow_mode_holds_what_it_took_and_releases_it() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", TWO).shadow());
    let (service, mut senders) = feeding(&layer);
    let mut all: Vec<_> = (0..5).map(|_| send_fed(&service, &mut senders)).collect();
    assert_eq!(left(&layer), 0);
    drop(all.pop());
    assert_eq!(left(&layer), 0, "it took none");
    drop(all);
    assert_eq!(left(&layer), 2);
}

#[test]
fn slots_are_released_where_they_were_taken_though_policies_were_replaced() {
    let layer = streams(TWO);
    let (service, mut senders) = feeding(&layer);
    let (old, _sender) = send_fed(&service, &mut senders);
    let replace = |name, quota| layer.clone().live().replace_policies([Policy::new(name, quota)]).expect("valid");
    replace("streams", Quota::concurrency(5));
    assert_eq!(left(&layer), 4, "the slot counts on");
    let (new, _sender) = send_fed(&service, &mut senders);
    drop(old);
    assert_eq!(left(&layer), 4);
    replace("other", TWO);
    drop(new);
    replace("streams", TWO);
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_slot_is_not_settled_by_a_real_cost_nor_by_charges_of_the_handler() {
    let tier = |_: &_| Some(Quota::concurrency(4));
    let policy = Policy::new("streams", Quota::per_hour(10)).metered().count(Count::failures()).tier(tier);
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone(), [Rule::new("streams", Quota::concurrency(4))]);
    let layer = RateLimitLayer::new(store, policy.key(key::header("x-user").plain()));
    let service = around(&layer, |request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives it");
        handle.charge(2);
        handle.refund(1);
        let mut response = Response::new(full("hello"));
        response.extensions_mut().insert(ActualCost(3));
        response
    });
    let (response, ada) = (rig::send(&service, of("ada")), Key::new("header x-user", "ada"));
    assert_eq!(left_of(&limiter, &ada), 3);
    drop(response);
    assert_eq!(left_of(&limiter, &ada), 4);

    // Where the quota of the policy has slots, that is an error.
    for (policy, option) in [
        (Policy::new("streams", TWO).metered(), "metered"),
        (Policy::new("streams", TWO).count(Count::failures()), "count"),
    ] {
        let error = rig::layer([]).live().replace_policies([policy]).expect_err("it makes no sense");
        assert!(error.is_invalid() && error.to_string().ends_with(&format!("leave out {option}")), "{error}");
    }
}
