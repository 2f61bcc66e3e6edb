//! Layers around layers that refuse: what one of them refuses, another does not charge for.

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode, Version};
use tollgate::key::Ambiguous;
use tollgate::policy::{Count, MissingKey};
use tollgate::test_util::FailingStore;
use tollgate::{Key, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::{Layer, Service as _, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, Service, Text, and, as_told, each, get, handle, hello, over, send, with};

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const ONE: Quota = Quota::fixed_window(1, HOUR);

fn outer(rig: &Rig, name: &str, quota: Quota) -> RateLimitLayer {
    rig.layer([Policy::new(name, quota).count(Count::served()), Policy::new(&format!("{name}-all"), FIVE)])
}

/// The status of the response through a layer around another service.
fn status(layer: &RateLimitLayer, inner: &Service, request: Request<Text>) -> StatusCode {
    let response = layer.layer(inner.clone()).oneshot(request).now_or_never().expect("an answer at once");
    response.expect("it does not fail").status()
}

#[test]
fn what_a_layer_inside_refuses_is_refunded() {
    for quota in each(5) {
        let rig = Rig::new();
        let (layer, inner) = (outer(&rig, "address", quota), hello(&rig.layer([Policy::new("user", ONE)])));
        for (expected, left, left_of_all) in [(200, 4, 4), (429, 4, 3), (429, 4, 2)] {
            assert_eq!(status(&layer, &inner, get()), expected, "{quota}");
            assert_eq!(rig.left_of_all("address", quota), left, "{quota}");
            assert_eq!(rig.left_of_all("address-all", FIVE), left_of_all, "another policy counts them");
        }
    }
}

/// Layers that refuse each request, each in another way, with the status of their responses.
fn refusing(rig: &Rig) -> Vec<(&'static str, u16, RateLimitLayer)> {
    let too_much = |name: &str| Policy::new(name, FIVE).cost_by(|_| 6);
    let tenant = || Policy::new("tenant", FIVE).missing_key(MissingKey::Deny);
    let ambiguous = tenant().key(key::from_fn(|_| Err::<Key, _>(Ambiguous)));
    let missing = tenant().key(key::from_fn(|_| None::<Key>));
    let teapot = || Response::builder().status(StatusCode::IM_A_TEAPOT).body(Bytes::new()).expect("a response");
    let rejected = tenant().key(key::from_fn(move |_| Err::<Key, _>(Box::new(teapot()))));
    let failing = FailingStore::new(rig.store.clone());
    failing.fail();
    let failed = RateLimitLayer::new(failing, Policy::new("failed", FIVE)).on_failure(OnFailure::Deny);
    vec![
        ("a policy", 429, rig.layer([too_much("spent")])),
        ("no key", 403, rig.layer([missing])),
        ("an ambiguous key", 400, rig.layer([ambiguous])),
        ("an extractor", 418, rig.layer([rejected])),
        ("a failed store", 503, failed),
        ("a response of the application", 418, rig.layer([too_much("own")]).on_denied_http(move |_, _| teapot())),
    ]
}

#[test]
fn every_refusal_of_a_layer_inside_is_refunded_however_many_are_around() {
    let mut call = and(with("content-type", "application/grpc"), "te", "trailers");
    (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
    let rig = Rig::new();
    for (how, expected, inner) in refusing(&rig) {
        for request in [get(), call.clone()] {
            let inside = outer(&rig, "middle", FIVE).layer(hello(&inner));
            let response = outer(&rig, "outer", FIVE).layer(inside).oneshot(request.clone()).now_or_never();
            let got = response.expect("an answer at once").expect("it does not fail").status();
            assert!(got == expected || request.method() == Method::POST, "{how}: {got}");
            for name in ["middle", "outer"] {
                assert_eq!(rig.left_of_all(name, FIVE), 5, "{how}, {name}: {request:?}");
            }
        }
        rig.clock.advance(HOUR);
    }
}

#[test]
fn what_the_service_itself_or_a_handler_responds_counts() {
    let rig = Rig::new();
    let service = over(&outer(&rig, "address", FIVE), as_told);
    for (status, left) in [("200", 4), ("403", 3), ("429", 2), ("503", 1), ("200", 0)] {
        assert_eq!(send(&service, with("x-status", status)).status().as_str(), status);
        assert_eq!(rig.left_of_all("address", FIVE), left, "{status}");
    }
    assert_eq!(send(&service, get()).status(), 429, "it refuses for itself");
    let checking = over(&outer(&rig, "checked", FIVE), async |request| {
        let decision = handle(&request).check(&Policy::new("more", FIVE).cost(6), &Key::new("global", "")).await;
        handle(&request).denial(&decision.expect("the store decides")).map(Text::new)
    });
    assert_eq!(send(&checking, get()).status(), 429);
    assert_eq!(rig.left_of_all("checked", FIVE), 4);
}

#[test]
fn a_service_in_between_may_check_what_is_served_or_take_the_handle_out() {
    for checks in [true, false] {
        let rig = Rig::new();
        let inner = hello(&rig.layer([Policy::new("inner", ONE)]));
        let between = service_fn(move |mut request: Request<Text>| {
            let mut inner = inner.clone();
            async move {
                if checks {
                    let user = Policy::new("user", FIVE).count(Count::served());
                    let checked = handle(&request).check(&user, &Key::new("global", "")).await;
                    assert!(checked.is_ok_and(|decision| decision.is_allowed()));
                } else {
                    request.extensions_mut().remove::<RateLimitHandle>();
                }
                inner.call(request).await
            }
        });
        let (layer, between) = (outer(&rig, "address", FIVE), Service::new(between));
        for expected in [200, 429, 429] {
            assert_eq!(status(&layer, &between, get()), expected, "it checks: {checks}");
            assert_eq!(rig.left_of_all("address", FIVE), 4, "it checks: {checks}");
            assert_eq!(rig.left_of_all("user", FIVE), if checks { 4 } else { 5 });
        }
    }
}
