//! Guards, which handlers move into tasks that go on after the response.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, channel};

use http::{Request, Response, StatusCode};
use tollgate::store::SlotGuard;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Service, TWO, around, empty, full, left, left_of, send, streams};
use crate::rig::request;

fn handle(request: &Request<String>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().expect("the layer gives it").clone()
}

/// A layer whose service passes on what `keep` makes of each handle, and responds with a body or upgrades the connection.
fn keeping<T: Send + 'static>(
    layer: &RateLimitLayer,
    upgrades: bool,
    keep: fn(&RateLimitHandle) -> T,
) -> (Service, Receiver<T>) {
    let (keeps, kept) = channel();
    let service = around(layer, move |request| {
        keeps.send(keep(&handle(&request))).expect("the test receives it");
        let mut response = Response::new(if upgrades { empty() } else { full("hello") });
        if upgrades {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        response
    });
    (service, kept)
}

#[test]
fn a_guard_keeps_the_slots_of_an_upgraded_connection_until_all_its_clones_are_dropped() {
    let layer = streams(TWO);
    let (service, guards) = keeping(&layer, true, RateLimitHandle::slots);
    drop(send(&service));
    assert_eq!(left(&layer), 1);
    let guard = guards.try_recv().expect("it was called");
    assert!(!guard.is_empty());
    let clone = guard.clone();
    drop(guard);
    assert_eq!(left(&layer), 1);
    drop(clone);
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_handle_that_is_kept_keeps_no_slots_and_a_guard_of_none_is_empty() {
    let layer = streams(TWO);
    let (service, handles) = keeping(&layer, true, RateLimitHandle::clone);
    drop(send(&service));
    assert_eq!(left(&layer), 2);
    assert!(handles.try_recv().expect("it was called").slots().is_empty());
    let (service, guards) = keeping(&streams(Quota::per_hour(10)), true, RateLimitHandle::slots);
    drop(send(&service));
    assert!(guards.try_recv().expect("it was called").is_empty());
    assert!(SlotGuard::default().is_empty());
}

#[test]
fn a_guard_that_is_made_while_the_body_is_sent_holds_its_slots_on() {
    let layer = streams(TWO);
    let (service, handles) = keeping(&layer, false, RateLimitHandle::clone);
    let response = send(&service);
    let guard = handles.try_recv().expect("it was called").slots();
    drop(response);
    assert_eq!(left(&layer), 1);
    drop(guard);
    assert_eq!(left(&layer), 2);
}

#[tokio::test]
async fn what_a_handler_checks_is_held_until_its_body_ends_and_not_at_all_after_that() {
    let exports = || Policy::new("exports", Quota::concurrency(3));
    let (keeps, kept) = channel();
    let inner = streams(TWO).layer(service_fn(move |request: Request<String>| {
        let (handle, keeps) = (handle(&request), keeps.clone());
        async move {
            let decision = handle.check(&exports(), &Key::new("user", "ada")).await.expect("memory never fails");
            assert!(decision.is_allowed());
            keeps.send(handle).expect("the test receives it");
            Ok::<_, Infallible>(Response::new(String::from("hello")))
        }
    }));
    let response = inner.oneshot(request()).await.expect("a response");
    let handle = kept.try_recv().expect("it was called");
    let has_left = async |expected: u64| {
        let look = handle.check(&exports().cost(0), &Key::new("user", "ada")).await.expect("memory never fails");
        assert_eq!(look.outcomes()[0].remaining(), expected);
    };
    has_left(2).await;
    drop(response);
    has_left(3).await;
    let late = handle.check(&exports(), &Key::new("user", "ada")).await.expect("memory never fails");
    assert!(late.is_allowed());
    has_left(3).await;
}

#[tokio::test]
async fn a_limiter_holds_slots_by_a_guard_and_releases_those_of_a_check_at_once() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("exports", Quota::concurrency(3)).cost(2)]);
    let ada = Key::new("user", "ada");
    for _ in 0..5 {
        assert!(limiter.check(&ada).await.expect("memory never fails").is_allowed());
        assert_eq!(left_of(&limiter, &ada), 3);
    }
    let (decision, slots) = limiter.acquire(&ada).await.expect("memory never fails");
    assert!(decision.is_allowed() && !slots.is_empty());
    assert_eq!(left_of(&limiter, &ada), 1);
    let (refused, none) = limiter.acquire(&ada).await.expect("memory never fails");
    assert!(!refused.is_allowed() && none.is_empty());
    drop(slots);
    assert_eq!(left_of(&limiter, &ada), 3);
}
