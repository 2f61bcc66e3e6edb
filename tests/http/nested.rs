//! Layers around layers: what handlers and outer layers find of each.

use std::convert::Infallible;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Empty;
use tollgate::body::ResponseBody;
use tollgate::{Decision, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

type Service<B> = BoxCloneService<Request<String>, Response<B>, Infallible>;

const MANY: Quota = Quota::per_hour(100);

fn layer(name: &str, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new(name, quota)).expose_decisions()
}

/// The policies of a decision and of those of outer layers, in this order.
fn names(innermost: &Decision) -> Vec<&str> {
    let all = std::iter::successors(Some(innermost), |decision| decision.outer());
    all.map(|decision| decision.outcomes()[0].policy()).collect()
}

fn service(
    answer: impl Fn(Request<String>) -> Response<Empty<Bytes>> + Clone + Send + 'static,
) -> Service<Empty<Bytes>> {
    BoxCloneService::new(service_fn(move |request| std::future::ready(Ok(answer(request)))))
}

fn plain() -> Service<Empty<Bytes>> {
    service(|_| Response::default())
}

#[track_caller]
fn send<B>(service: &Service<B>) -> Response<B> {
    service.clone().oneshot(Request::new(String::new())).now_or_never().expect("an answer at once").expect("a response")
}

type Three = Service<ResponseBody<ResponseBody<ResponseBody<Empty<Bytes>>>>>;

fn three(inner: Service<Empty<Bytes>>, quota: Quota) -> Three {
    let inner = BoxCloneService::new(layer("inner", quota).layer(inner));
    let middle = BoxCloneService::new(layer("middle", MANY).layer(inner));
    BoxCloneService::new(layer("outer", MANY).layer(middle))
}

#[test]
fn a_handler_finds_the_decisions_of_all_layers_innermost_first() {
    let service = three(
        service(|request| {
            let decision = request.extensions().get::<RateLimitHandle>().expect("the layer gives it").decision();
            assert_eq!(names(&decision), ["inner", "middle", "outer"]);
            Response::default()
        }),
        MANY,
    );
    send(&service);
}

#[test]
fn a_handler_finds_the_handles_of_all_layers() {
    let service = three(
        service(|request| {
            let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives it");
            assert_eq!(std::iter::successors(Some(handle), |handle| handle.outer()).count(), 3);
            Response::default()
        }),
        MANY,
    );
    send(&service);
}

#[test]
fn a_response_has_the_decisions_of_all_layers_innermost_first() {
    let response = send(&three(plain(), MANY));
    let decision: &Decision = response.extensions().get().expect("the layers give it");
    assert_eq!(names(decision), ["inner", "middle", "outer"]);
    assert!(decision.is_allowed());
}

#[test]
fn a_refusal_inside_comes_first_and_the_layers_that_admitted_stand_behind_it() {
    let service = three(plain(), Quota::per_hour(1));
    send(&service);
    let refused = send(&service);
    assert_eq!(refused.status(), 429);
    let decision: &Decision = refused.extensions().get().expect("the layers give it");
    assert_eq!(names(decision), ["inner", "middle", "outer"]);
    let allowed = std::iter::successors(Some(decision), |decision| decision.outer()).map(Decision::is_allowed);
    assert_eq!(allowed.collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(refused.headers()["retry-after"], "3600");
}

#[test]
fn a_layer_by_itself_has_none_outside_of_it() {
    let inner = service(|request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives it");
        assert!(handle.outer().is_none() && handle.decision().outer().is_none());
        Response::default()
    });
    let response = send(&BoxCloneService::new(layer("only", MANY).layer(inner)));
    assert!(response.extensions().get::<Decision>().expect("the layer gives it").outer().is_none());
}

#[test]
fn responses_have_a_decision_only_where_a_layer_exposes_it() {
    let limit = Quota::per_hour(1);
    let silent = |name: &str| RateLimitLayer::new(MemoryStore::new(), Policy::new(name, limit));
    for (exposes, layer) in [(false, silent("silent")), (true, layer("exposes", limit))] {
        let service = BoxCloneService::new(layer.layer(plain()));
        for status in [200, 429] {
            let response = send(&service);
            let found = response.extensions().get::<Decision>().map(Decision::is_allowed);
            assert_eq!((response.status().as_u16(), found), (status, exposes.then_some(status == 200)));
        }
    }
    // A layer outside of one that exposes its decision adds its own to it.
    let service = BoxCloneService::new(silent("outer").layer(layer("inner", limit).layer(plain())));
    let response = send(&service);
    assert_eq!(names(response.extensions().get().expect("the inner one gives it")), ["inner", "outer"]);
}
