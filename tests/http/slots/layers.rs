//! Slots beside other policies: in nested layers, replaced policies, tiers, and options that make no sense.

use std::convert::Infallible;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{TWO, around, everybody, feeding, full, left, left_of, send, send_fed, streams};

#[test]
fn each_of_nested_layers_holds_its_slots_until_the_body_ends() {
    let (outer, inner) = (streams(TWO), streams(Quota::concurrency(1)));
    let nested = outer.layer(inner.layer(service_fn(async |request: Request<String>| {
        let guard = request.extensions().get::<RateLimitHandle>().expect("the layer gives it").slots();
        assert!(!guard.is_empty());
        Ok::<_, Infallible>(Response::new(String::from("hello")))
    })));
    let call =
        || nested.clone().oneshot(Request::new(String::new())).now_or_never().expect("at once").expect("a response");
    let response = call();
    assert_eq!((left(&outer), left(&inner)), (1, 0));
    let refused = call();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The refusal of the inner layer is a response like others to the outer one.
    assert_eq!(left(&outer), 0);
    drop(refused);
    assert_eq!(left(&outer), 1);
    drop(response);
    assert_eq!((left(&outer), left(&inner)), (2, 1));
}

#[test]
fn a_request_that_another_policy_refuses_takes_no_slot() {
    let policies = [Policy::new("streams", TWO), Policy::new("all", Quota::per_hour(1))];
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    let service = around(&layer, |_| Response::new(full("hello")));
    drop(send(&service));
    let refused = send(&service);
    assert_eq!((refused.status(), left(&layer)), (StatusCode::TOO_MANY_REQUESTS, 2));
}

#[test]
fn a_policy_in_shadow_mode_holds_what_it_took_and_releases_it() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", TWO).shadow());
    let (service, mut senders) = feeding(&layer);
    let all: Vec<_> = (0..5).map(|_| send_fed(&service, &mut senders)).collect();
    assert_eq!(left(&layer), 0);
    let mut all = all.into_iter();
    drop(all.next_back());
    assert_eq!(left(&layer), 0, "it took none");
    drop(all);
    assert_eq!(left(&layer), 2);
}

#[test]
fn slots_are_released_where_they_were_taken_though_policies_were_replaced() {
    let layer = streams(TWO);
    let (service, mut senders) = feeding(&layer);
    let (old, _sender) = send_fed(&service, &mut senders);
    layer.clone().live().replace_policies([Policy::new("streams", Quota::concurrency(5))]).expect("they are valid");
    assert_eq!(left(&layer), 4, "the slot counts on");
    let (new, _sender) = send_fed(&service, &mut senders);
    drop(old);
    assert_eq!(left(&layer), 4);
    layer.clone().live().replace_policies([Policy::new("other", TWO)]).expect("they are valid");
    drop(new);
    layer.clone().live().replace_policies([Policy::new("streams", TWO)]).expect("they are valid");
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
    let request = Request::get("/").header("x-user", "ada").body(String::new()).expect("a request");
    let response = service.oneshot(request).now_or_never().expect("at once").expect("a response");
    let ada = Key::new("header x-user", "ada");
    assert_eq!(left_of(&limiter, &ada), 3);
    drop(response);
    assert_eq!(left_of(&limiter, &ada), 4);
}

#[test]
fn what_settles_by_the_outcome_of_a_request_is_an_error_for_slots() {
    let layer = RateLimitLayer::composite(MemoryStore::new());
    for (policy, option) in [
        (Policy::new("streams", TWO).metered(), "metered"),
        (Policy::new("streams", TWO).count(Count::failures()), "count"),
    ] {
        let error = layer.clone().live().replace_policies([policy]).expect_err("it makes no sense");
        let text = format!("policy \"streams\": its slots are released at the end of each request: leave out {option}");
        assert!(error.is_invalid());
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn stores_around_a_store_take_and_release_its_slots() {
    fn around_memory(of: impl Fn(MemoryStore) -> Box<dyn Store>) -> (MemoryStore, Box<dyn Store>) {
        let memory = MemoryStore::new();
        (memory.clone(), of(memory))
    }
    for (memory, store) in [
        around_memory(|store| Box::new(DenyCache::builder(store).build())),
        around_memory(|store| Box::new(LeaseStore::builder(store).build())),
        around_memory(|store| Box::new(LeaseStore::builder(store).overdraft(10).build())),
    ] {
        let (inner, layer) = (
            Limiter::new(memory, [Rule::new("streams", TWO)]),
            RateLimitLayer::new(store, Policy::new("streams", TWO)),
        );
        // A hot key that is refused again and again.
        for _ in 0..50 {
            let held: Vec<_> = (0..2).map(|_| send(&around(&layer, |_| Response::new(full("hello"))))).collect();
            assert!(held.iter().all(|response| response.status() == StatusCode::OK));
            assert_eq!(left_of(&inner, &everybody()), 0);
            let refused = send(&around(&layer, |_| Response::new(full("hello"))));
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            drop(held);
            assert_eq!(left_of(&inner, &everybody()), 2);
        }
    }
}
