//! A lookup belongs to none of the requests that wait for it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::advance;
use tollgate::RateLimitLayer;
use tollgate::policy::TierLookup;

use super::rig::{Directory, PRO, memory, ms, send, tiered, told, with_token};

fn layer(lookup: TierLookup) -> RateLimitLayer {
    RateLimitLayer::new(memory(), tiered(lookup))
}

/// A lookup that ends when a test says so.
fn gated(directory: &Directory) -> (Arc<Notify>, TierLookup) {
    let open = Arc::new(Notify::new());
    let gate = Arc::clone(&open);
    let lookup = directory.tiers_by(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Some(PRO))
        }
    });
    (open, lookup)
}

#[tokio::test]
async fn a_lookup_goes_on_when_the_request_that_began_it_is_gone() {
    let directory = Directory::default();
    let (open, lookup) = gated(&directory);
    let layer = layer(lookup.timeout(Duration::from_secs(20))).timeout(Duration::from_secs(40));
    let mut first = Box::pin(told(&layer, "ada", "x-ratelimit-limit"));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(told(&layer, "ada", "x-ratelimit-limit"));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    open.notify_one();
    assert_eq!(second.await, "200000");
    assert_eq!(directory.asked(), 1);
}

#[tokio::test]
async fn a_request_that_is_polled_once_and_left_holds_up_no_other() {
    let directory = Directory::default();
    let layer = layer(directory.tiers(ms(5)).timeout(Duration::from_secs(20))).timeout(Duration::from_secs(40));
    let mut left = Box::pin(told(&layer, "ada", "x-ratelimit-limit"));
    assert!((&mut left).now_or_never().is_none());
    let others = join_all((0..20).map(|_| told(&layer, "ada", "x-ratelimit-limit"))).await;
    assert!(others.iter().all(|limit| limit == "200000"), "{others:?}");
    assert_eq!(left.await, "200000");
    assert_eq!(directory.asked(), 1);
}

#[test]
fn a_request_that_is_polled_once_on_a_thread_that_then_blocks_holds_up_no_other() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let directory = Directory::default();
    let layer = layer(directory.tiers(ms(5)).timeout(Duration::from_secs(20))).timeout(Duration::from_secs(40));
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let limit = runtime.block_on(async {
        let (began, begins) = tokio::sync::oneshot::channel();
        let left = layer.clone();
        let blocks = tokio::spawn(async move {
            let mut left = Box::pin(told(&left, "ada", "x-ratelimit-limit"));
            assert!((&mut left).now_or_never().is_none());
            began.send(()).expect("it is received");
            let _ = blocked.recv();
        });
        begins.await.expect("no panic");
        let limit = tokio::time::timeout(Duration::from_secs(10), told(&layer, "ada", "x-ratelimit-limit")).await;
        drop(unblock);
        blocks.await.expect("no panic");
        limit
    });
    assert_eq!(limit.as_deref(), Ok("200000"));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_fails_for_all_who_wait_and_is_made_again_after_a_second() {
    let directory = Directory::default();
    let asked = directory.clone();
    let lookup = directory.tiers_by(move |_| {
        let first = asked.asked() == 1;
        assert!(!first, "the first lookup panics");
        std::future::ready(Ok(Some(PRO)))
    });
    let layer = layer(lookup);
    let limits = join_all((0..10).map(|_| told(&layer, "ada", "x-ratelimit-limit"))).await;
    assert!(limits.iter().all(|limit| limit == "100000"), "{limits:?}");
    assert_eq!(told(&layer, "ada", "x-ratelimit-limit").await, "100000");
    assert_eq!(directory.asked(), 1);
    advance(Duration::from_secs(1)).await;
    assert_eq!(told(&layer, "ada", "x-ratelimit-limit").await, "200000");
    assert_eq!(directory.asked(), 2);
}
#[test]
fn a_lookup_whose_runtime_ends_is_made_on_that_of_the_next_request() {
    let directory = Directory::default();
    let (open, lookup) = gated(&directory);
    let layer = layer(lookup.timeout(Duration::from_secs(20))).timeout(Duration::from_secs(40));
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (one, other) = (runtime(), runtime());
    one.block_on(async {
        let mut first = Box::pin(send(&layer, with_token("ada")));
        assert!((&mut first).now_or_never().is_none());
        tokio::task::yield_now().await;
    });
    let limit = other.block_on(async {
        let mut second = Box::pin(told(&layer, "ada", "x-ratelimit-limit"));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(directory.asked(), 1, "it waits for the one of the other runtime");
        tokio::task::spawn_blocking(move || drop(one)).await.expect("no panic");
        open.notify_one();
        second.await
    });
    assert_eq!(limit, "200000");
    assert_eq!(directory.asked(), 2);
}

#[test]
fn outside_of_a_runtime_a_request_makes_its_own_lookup() {
    let directory = Directory::default();
    let layer = layer(directory.tiers_by(|_| std::future::ready(Ok(Some(PRO)))));
    let response = futures::executor::block_on(async {
        let greet = tower::service_fn(async |_: http::Request<super::rig::Text>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(super::rig::Text::default()))
        });
        tower::ServiceExt::oneshot(tower::Layer::layer(&layer, greet), with_token("ada")).await.expect("a response")
    });
    assert_eq!(response.headers()["x-ratelimit-limit"], "200000");
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_key_for_long() {
    let directory = Directory::default();
    let layer = layer(directory.tiers(ms(1)));
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let (stands_still, other) = (runtime(), runtime());
    stands_still.block_on(async {
        assert!(send(&layer, with_token("ada")).now_or_never().is_none());
        // As far as the runtime comes before its thread does something else.
        tokio::task::yield_now().await;
    });
    other.block_on(async {
        for _ in 0..1_000 {
            let limit = told(&layer, "ada", "x-ratelimit-limit").await;
            if limit == "200000" {
                return;
            }
            advance(Duration::from_secs(2)).await;
        }
        panic!("for half an hour and longer the key had no tier");
    });
    drop(stands_still);
}
