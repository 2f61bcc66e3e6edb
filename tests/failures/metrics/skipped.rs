//! Each policy counts the requests that it did not count, by the reason.

use std::convert::Infallible;
use std::future::ready;
use std::io;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Key, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;
use crate::rig::MANY;

/// A policy by user, which no request is refused by.
fn policy() -> Policy {
    Policy::new("user", MANY).key(key::header("x-user").plain())
}

fn list(user: &'static str) -> AccessList {
    AccessList::default().key_of("header x-user", user)
}

fn get() -> Request<Full<Bytes>> {
    Request::new(Full::default())
}

fn of_user() -> Request<Full<Bytes>> {
    let mut request = get();
    request.headers_mut().insert("x-user", "ada".parse().expect("ASCII"));
    request
}

fn preflight() -> Request<Full<Bytes>> {
    let mut request = of_user();
    *request.method_mut() = Method::OPTIONS;
    for name in ["origin", "access-control-request-method"] {
        request.headers_mut().insert(name, "x".parse().expect("ASCII"));
    }
    request
}

async fn send(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> u16 {
    let serve =
        service_fn(|_: Request<Full<Bytes>>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    layer.layer(serve).oneshot(request).await.expect("a response").status().as_u16()
}

/// A key that is looked up, and not found because of an error.
fn failing() -> Policy {
    let fails = |_| ready(Err::<Option<Key>, _>(io::Error::other("no database")));
    Policy::new("user", MANY).key(key::lookup(key::header("x-user"), fails))
}

/// A key that is looked up, and missing.
fn absent() -> Policy {
    let none = |_| ready(Ok::<_, Infallible>(None::<Key>));
    Policy::new("user", MANY).key(key::lookup(key::header("x-user"), none))
}

#[tokio::test]
async fn each_reason_is_counted() {
    for (policy, request, reason) in [
        (policy().methods([Method::POST]), of_user(), "scope"),
        (policy().when(|_| false), of_user(), "scope"),
        (policy(), preflight(), "scope"),
        (policy().allow(list("ada")), of_user(), "list"),
        (policy(), get(), "key_missing"),
        (policy().shadow(), get(), "key_missing"),
        (absent(), of_user(), "key_missing"),
        (failing(), of_user(), "key_missing"),
    ] {
        let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_failure(OnFailure::Allow);
        let watch = Watch::start();
        assert_eq!(send(&layer, request).await, 200);
        let skipped = format!("policies_skipped_total{{policy=user,reason={reason}}}");
        watch.saw(&[("decisions_total{source=none,verdict=allowed}", 1), (&skipped, 1)]);
    }
}

#[tokio::test]
async fn a_refusal_is_no_skip_even_in_shadow_mode() {
    for (policy, status, verdict) in [
        (policy().missing_key(MissingKey::Deny), 403, "forbidden"),
        (policy().missing_key(MissingKey::Deny).shadow(), 200, "allowed"),
    ] {
        let watch = Watch::start();
        assert_eq!(send(&RateLimitLayer::new(MemoryStore::new(), policy), get()).await, status);
        watch.saw(&[(&format!("decisions_total{{source=none,verdict={verdict}}}"), 1)]);
    }
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("trial", Quota::per_hour(1)).shadow());
    let watch = Watch::start();
    send(&layer, get()).await;
    send(&layer, get()).await;
    watch.saw(&[
        ("decisions_total{source=store,verdict=allowed}", 2),
        ("policy_refusals_total{policy=trial,mode=shadow}", 1),
    ]);
}

#[tokio::test]
async fn a_look_at_the_status_is_no_skip() {
    for policy in [policy(), absent(), policy().methods([Method::POST])] {
        let watch = Watch::start();
        let status = RateLimitLayer::new(MemoryStore::new(), policy).live().status_service_for(|_| true);
        for request in [get(), of_user()] {
            status.clone().oneshot(request).await.expect("a response");
        }
        watch.saw(&[]);
    }
}
