//! Guards, which handlers move into tasks that go on after the response.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use http::{Request, Response, StatusCode};
use tokio::time::sleep;
use tollgate::store::SlotGuard;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Service, TWO, around, empty, full, left, left_of, send, streams};

fn handle(request: &Request<String>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().expect("the layer gives it").clone()
}

/// A layer whose service puts what `keep` makes of each handle into a list.
fn keeping<T: Send + 'static>(
    layer: &RateLimitLayer,
    keep: fn(&RateLimitHandle) -> T,
) -> (Service, Arc<Mutex<Vec<T>>>) {
    let kept = Arc::<Mutex<Vec<T>>>::default();
    let list = Arc::clone(&kept);
    let service = around(layer, move |request| {
        list.lock().expect("nothing panics").push(keep(&handle(&request)));
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
    });
    (service, kept)
}

#[test]
fn a_guard_keeps_the_slots_of_an_upgraded_connection_until_all_its_clones_are_dropped() {
    let layer = streams(TWO);
    let (service, guards) = keeping(&layer, RateLimitHandle::slots);
    drop(send(&service));
    assert_eq!(left(&layer), 1);
    let guard = guards.lock().expect("nothing panics").remove(0);
    assert!(!guard.is_empty());
    let clone = guard.clone();
    drop(guard);
    assert_eq!(left(&layer), 1);
    drop(clone);
    assert_eq!(left(&layer), 2);
    assert!(SlotGuard::default().is_empty());
}

#[tokio::test]
async fn the_slots_of_an_upgraded_connection_are_renewed_and_released_though_its_task_panics() {
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let policy = Policy::new("streams", TWO.slot_ttl(Duration::from_secs(3)));
    let layer = RateLimitLayer::new(store, policy);
    let (service, guards) = keeping(&layer, RateLimitHandle::slots);
    drop(send(&service));
    let guard = guards.lock().expect("nothing panics").remove(0);
    let connection = tokio::spawn(async move {
        let _slots = guard;
        sleep(Duration::from_secs(20)).await;
        panic!("as the test wants");
    });
    for _ in 0..19 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(left(&layer), 1);
    }
    assert!(connection.await.is_err_and(|error| error.is_panic()));
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_handle_that_is_kept_keeps_no_slots_and_gives_no_guard_of_them() {
    let layer = streams(TWO);
    let (service, handles) = keeping(&layer, RateLimitHandle::clone);
    drop(send(&service));
    assert_eq!(left(&layer), 2);
    assert!(handles.lock().expect("nothing panics")[0].slots().is_empty());
}

#[test]
fn a_guard_that_is_made_while_the_body_is_sent_holds_its_slots_on() {
    let layer = streams(TWO);
    let kept = Arc::<Mutex<Vec<RateLimitHandle>>>::default();
    let list = Arc::clone(&kept);
    let service = around(&layer, move |request| {
        list.lock().expect("nothing panics").push(handle(&request));
        Response::new(full("hello"))
    });
    let response = send(&service);
    let guard = kept.lock().expect("nothing panics")[0].slots();
    drop(response);
    assert_eq!(left(&layer), 1);
    drop(guard);
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_request_without_slots_has_an_empty_guard() {
    let layer = streams(Quota::per_hour(10));
    let (service, guards) = keeping(&layer, RateLimitHandle::slots);
    drop(send(&service));
    assert!(guards.lock().expect("nothing panics")[0].is_empty());
}

#[tokio::test]
async fn what_a_handler_checks_is_held_until_its_body_ends_and_not_at_all_after_that() {
    let layer = streams(TWO);
    let kept = Arc::<Mutex<Vec<RateLimitHandle>>>::default();
    let list = Arc::clone(&kept);
    let exports = || Policy::new("exports", Quota::concurrency(3));
    let inner = layer.layer(service_fn(move |request: Request<String>| {
        let (handle, list) = (handle(&request), Arc::clone(&list));
        async move {
            let decision = handle.check(&exports(), &Key::new("user", "ada")).await.expect("memory never fails");
            assert!(decision.is_allowed());
            list.lock().expect("nothing panics").push(handle);
            Ok::<_, Infallible>(Response::new(String::from("hello")))
        }
    }));
    let response = inner.oneshot(Request::new(String::new())).await.expect("a response");
    let handle = kept.lock().expect("nothing panics").remove(0);
    let checks_one = async |expected: u64| {
        let look = handle.check(&exports().cost(0), &Key::new("user", "ada")).await.expect("memory never fails");
        assert_eq!(look.outcomes()[0].remaining(), expected);
    };
    checks_one(2).await;
    drop(response);
    checks_one(3).await;
    let late = handle.check(&exports(), &Key::new("user", "ada")).await.expect("memory never fails");
    assert!(late.is_allowed());
    checks_one(3).await;
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
    let (done, ended) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let _slots = slots;
        ended.await
    });
    tokio::task::yield_now().await;
    assert_eq!(left_of(&limiter, &ada), 1);
    drop(done);
    assert!(work.await.expect("it does not panic").is_err());
    assert_eq!(left_of(&limiter, &ada), 3);
}
