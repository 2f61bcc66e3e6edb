//! Layers around layers that refuse: what one of them refuses, another does not charge for.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use tollgate::body::ResponseBody;
use tollgate::key::Ambiguous;
use tollgate::policy::{Count, MissingKey};
use tollgate::test_util::FailingStore;
use tollgate::{Key, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, Service, Text, and, as_told, background, get, line, on_each_store, send, with};

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const ONE: Quota = Quota::fixed_window(1, HOUR);

type Nested = BoxCloneService<Request<Text>, Response<ResponseBody<ResponseBody<Text>>>, Infallible>;

fn around(outer: &RateLimitLayer, inner: Service) -> Nested {
    BoxCloneService::new(outer.layer(inner))
}

fn outer(rig: &Rig, name: &str, quota: Quota) -> RateLimitLayer {
    rig.layer([Policy::new(name, quota).count(Count::served()), Policy::new(&format!("{name}-all"), FIVE)])
}

/// A response, and what is sent in the background after it.
async fn answer(service: &Nested, request: Request<Text>) -> Response<ResponseBody<ResponseBody<Text>>> {
    let response = service.clone().oneshot(request).await.expect("the service does not fail");
    background().await;
    response
}

#[tokio::test]
async fn what_a_layer_inside_refuses_is_refunded() {
    on_each_store(async |rig| {
        let quotas = [FIVE, Quota::token_bucket(5, HOUR), Quota::sliding_window(5, HOUR), Quota::sliding_log(5, HOUR)];
        for (place, quota) in quotas.into_iter().enumerate() {
            let (address, user) = (format!("address-{place}"), format!("user-{place}"));
            let service = around(&outer(rig, &address, quota), as_told(&rig.layer([Policy::new(&user, ONE)])));
            for (status, left, left_of_all) in [(200, 4, 4), (429, 4, 3), (429, 4, 2)] {
                assert_eq!(answer(&service, get()).await.status(), status, "{}: {quota}", rig.name);
                assert_eq!(rig.left_of_all(&address, quota).await, left, "{}: {quota}", rig.name);
                let all = rig.left_of_all(&format!("{address}-all"), FIVE).await;
                assert_eq!(all, left_of_all, "{}: another policy counts them", rig.name);
            }
        }
    })
    .await;
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

#[tokio::test]
async fn every_refusal_of_a_layer_inside_is_refunded_however_many_are_around() {
    on_each_store(async |rig| {
        for (place, (how, status, inner)) in refusing(rig).into_iter().enumerate() {
            let [middle, outmost] = ["middle", "outer"].map(|name| format!("{name}-{place}"));
            let inside = around(&outer(rig, &middle, FIVE), as_told(&inner));
            let response = outer(rig, &outmost, FIVE).layer(inside).oneshot(get()).await.expect("it does not fail");
            assert_eq!(response.status(), status, "{}: {how}", rig.name);
            background().await;
            for name in [middle, outmost] {
                assert_eq!(rig.left_of_all(&name, FIVE).await, 5, "{}: {how}, {name}", rig.name);
            }
        }
        let inner = rig.layer([Policy::new("calls", FIVE).cost_by(|_| 6)]);
        let service = around(&outer(rig, "address", FIVE), as_told(&inner));
        let mut call = and(with("content-type", "application/grpc"), "te", "trailers");
        (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
        let response = answer(&service, call).await;
        assert_eq!((response.status().as_u16(), line(&response, "grpc-status")), (200, "8"), "{}", rig.name);
        assert_eq!(rig.left_of_all("address", FIVE).await, 5, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn what_the_service_itself_or_a_handler_responds_counts() {
    on_each_store(async |rig| {
        let service = as_told(&outer(rig, "address", FIVE));
        for (status, left) in [("200", 4), ("403", 3), ("429", 2), ("503", 1), ("200", 0)] {
            assert_eq!(send(&service, with("x-status", status)).await.status().as_str(), status);
            assert_eq!(rig.left_of_all("address", FIVE).await, left, "{}: {status}", rig.name);
        }
        assert_eq!(send(&service, get()).await.status(), 429, "{}: it refuses for itself", rig.name);
        let inner = service_fn(async |request: Request<Text>| {
            let handle = request.extensions().get::<RateLimitHandle>().expect("the layer inserts it");
            let decision = handle.check(&Policy::new("more", FIVE).cost(6), &Key::new("global", "")).await;
            Ok::<_, Infallible>(handle.denial(&decision.expect("the store decides")).map(Text::new))
        });
        let response = outer(rig, "checked", FIVE).layer(inner).oneshot(get()).await.expect("it does not fail");
        assert_eq!(response.status(), 429);
        background().await;
        assert_eq!(rig.left_of_all("checked", FIVE).await, 4, "{}", rig.name);
    })
    .await;
}

/// It makes its check before it calls the layer inside, or after; and takes the handle out if it makes none.
fn in_between(inner: &RateLimitLayer, user: Option<&Policy>, is_before: bool) -> Service {
    let (inner, user) = (as_told(inner), user.cloned());
    Service::new(service_fn(move |mut request: Request<Text>| {
        let (inner, user) = (inner.clone(), user.clone());
        async move {
            let Some(user) = user else {
                request.extensions_mut().remove::<RateLimitHandle>();
                return inner.oneshot(request).await;
            };
            let handle = request.extensions().get::<RateLimitHandle>().expect("the layer outside inserts it").clone();
            let check = async || {
                let checked = handle.check(&user, &Key::new("user", "ada")).await.expect("the store decides");
                assert!(checked.is_allowed());
            };
            if is_before {
                check().await;
            }
            let response = inner.oneshot(request).await;
            if !is_before {
                check().await;
            }
            response
        }
    }))
}

#[tokio::test]
async fn a_service_in_between_may_check_what_is_served_or_take_the_handle_out() {
    on_each_store(async |rig| {
        for (name, is_before) in [("before", true), ("after", false)] {
            let user = Policy::new(name, FIVE).count(Count::served());
            let inner = rig.layer([Policy::new(&format!("inner-{name}"), ONE)]);
            let outmost = outer(rig, &format!("outer-{name}"), FIVE);
            let service = around(&outmost, in_between(&inner, Some(&user), is_before));
            for status in [200, 429, 429] {
                assert_eq!(answer(&service, get()).await.status(), status, "{}, {name}", rig.name);
                assert_eq!(rig.left(name, &Key::new("user", "ada"), FIVE).await, 4, "{}, {name}", rig.name);
            }
        }
        let inner = rig.layer([Policy::new("user", ONE)]);
        let service = around(&outer(rig, "address", FIVE), in_between(&inner, None, false));
        for status in [200, 429, 429] {
            assert_eq!(answer(&service, get()).await.status(), status, "{}", rig.name);
            assert_eq!(rig.left_of_all("address", FIVE).await, 4, "{}", rig.name);
        }
    })
    .await;
}
