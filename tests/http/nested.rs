//! Layers around layers: what handlers and outer layers find of each.

use http::Response;
use tollgate::{Decision, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tower::Layer;

use crate::rig::{Text, expect, hello, request, responding, send};

const MANY: Quota = Quota::per_hour(100);

fn silent(name: &str, quota: Quota) -> RateLimitLayer {
    crate::rig::layer([Policy::new(name, quota)])
}

fn layer(name: &str, quota: Quota) -> RateLimitLayer {
    silent(name, quota).expose_decisions()
}

/// The policies of a decision and of those of outer layers, in this order, and whether they admitted the request.
fn found(innermost: &Decision) -> Vec<(String, bool)> {
    let all = std::iter::successors(Some(innermost), |decision| decision.outer());
    all.map(|decision| (decision.outcomes()[0].policy().to_owned(), decision.is_allowed())).collect()
}

fn named(names: &[(&str, bool)]) -> Vec<(String, bool)> {
    names.iter().map(|(name, is_allowed)| ((*name).to_owned(), *is_allowed)).collect()
}

#[test]
fn a_handler_and_a_response_have_the_decisions_of_all_layers_innermost_first() {
    let handler = responding(|request| {
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives it");
        assert_eq!(found(&handle.decision()), named(&[("inner", true), ("middle", true), ("outer", true)]));
        assert_eq!(std::iter::successors(Some(handle), |handle| handle.outer()).count(), 3);
        Response::new(Text::default())
    });
    let inner = layer("middle", MANY).layer(layer("inner", Quota::per_hour(1)).layer(handler));
    let service = layer("outer", MANY).layer(inner);
    for is_allowed in [true, false] {
        let response = send(&service, request());
        assert_eq!(response.status() == 200, is_allowed);
        let decision: &Decision = response.extensions().get().expect("the layers give it");
        assert_eq!(found(decision), named(&[("inner", is_allowed), ("middle", true), ("outer", true)]));
        expect(response.headers(), &[("retry-after", if is_allowed { "" } else { "3600" })]);
    }
}

#[test]
fn a_layer_by_itself_has_none_outside_of_it() {
    let handler = responding(|request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives it");
        assert!(handle.outer().is_none() && handle.decision().outer().is_none());
        Response::new(Text::default())
    });
    let response = send(&layer("only", MANY).layer(handler), request());
    assert!(response.extensions().get::<Decision>().expect("the layer gives it").outer().is_none());
}

#[test]
fn responses_have_a_decision_only_where_a_layer_exposes_it() {
    let limit = Quota::per_hour(1);
    for (exposes, layer) in [(false, silent("silent", limit)), (true, layer("exposes", limit))] {
        let service = layer.layer(hello());
        for status in [200, 429] {
            let response = send(&service, request());
            let found = response.extensions().get::<Decision>().map(Decision::is_allowed);
            assert_eq!((response.status().as_u16(), found), (status, exposes.then_some(status == 200)));
        }
    }
    // A layer outside of one that exposes its decision adds its own to it.
    let response = send(&silent("outer", limit).layer(layer("inner", limit).layer(hello())), request());
    let decision = response.extensions().get().expect("the inner one gives it");
    assert_eq!(found(decision), named(&[("inner", true), ("outer", true)]));
}
