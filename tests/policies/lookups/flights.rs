//! A lookup belongs to none of the requests that wait for it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio::time::advance;
use tollgate::RateLimitLayer;
use tollgate::policy::TierLookup;

use super::rig::{Directory, PRO, layer, limit, ms, send, tiered, with_token};
use crate::rig;

/// A layer whose lookups have ample time.
fn patient(lookup: TierLookup) -> RateLimitLayer {
    layer(tiered(lookup.timeout(Duration::from_secs(15))))
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

fn one_thread(is_paused: bool) -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(is_paused).build().expect("a runtime")
}

#[tokio::test]
async fn a_lookup_goes_on_when_the_request_that_began_it_is_gone() {
    let directory = Directory::default();
    let (open, lookup) = gated(&directory);
    let layer = patient(lookup);
    let mut first = Box::pin(limit(&layer, "ada"));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(limit(&layer, "ada"));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    open.notify_one();
    assert_eq!((second.await, directory.asked()), (200_000, 1));
}

#[test]
fn a_request_that_is_polled_once_on_a_thread_that_then_blocks_holds_up_no_other() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let layer = patient(Directory::default().tiers(ms(5)));
    let (unblock, blocked) = mpsc::channel::<()>();
    let found = runtime.block_on(async {
        let (began, begins) = oneshot::channel();
        let left = layer.clone();
        tokio::spawn(async move {
            let mut left = Box::pin(limit(&left, "ada"));
            assert!((&mut left).now_or_never().is_none());
            began.send(()).expect("it is received");
            let _ = blocked.recv();
        });
        begins.await.expect("no panic");
        tokio::time::timeout(Duration::from_secs(10), limit(&layer, "ada")).await
    });
    drop(unblock);
    assert_eq!(found, Ok(200_000));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_fails_for_all_who_wait_and_is_made_again_after_a_second() {
    let directory = Directory::default();
    let asked = directory.clone();
    let layer = layer(tiered(directory.tiers_by(move |_| {
        assert!(asked.asked() > 1, "the first lookup panics");
        std::future::ready(Ok(Some(PRO)))
    })));
    assert_eq!(join_all((0..10).map(|_| limit(&layer, "ada"))).await, [100_000; 10]);
    assert_eq!((limit(&layer, "ada").await, directory.asked()), (100_000, 1));
    advance(Duration::from_secs(1)).await;
    assert_eq!((limit(&layer, "ada").await, directory.asked()), (200_000, 2));
}

#[test]
fn a_lookup_whose_runtime_ends_is_made_on_that_of_the_next_request() {
    let directory = Directory::default();
    let (open, lookup) = gated(&directory);
    let layer = patient(lookup);
    let (one, other) = (one_thread(false), one_thread(false));
    one.block_on(async {
        assert!(send(&layer, with_token("ada")).now_or_never().is_none());
        tokio::task::yield_now().await;
    });
    let found = other.block_on(async {
        let mut second = Box::pin(limit(&layer, "ada"));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(directory.asked(), 1, "it waits for the one of the other runtime");
        tokio::task::spawn_blocking(move || drop(one)).await.expect("no panic");
        open.notify_one();
        second.await
    });
    assert_eq!((found, directory.asked()), (200_000, 2));
}

#[test]
fn outside_of_a_runtime_a_request_makes_its_own_lookup() {
    let layer = layer(tiered(Directory::default().tiers_by(|_| std::future::ready(Ok(Some(PRO))))));
    assert_eq!(rig::send(&rig::hello(&layer), with_token("ada")).headers()["x-ratelimit-limit"], "200000");
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_key_for_long() {
    let layer = layer(tiered(Directory::default().tiers(ms(1))));
    let (stands_still, other) = (one_thread(true), one_thread(true));
    stands_still.block_on(async {
        assert!(send(&layer, with_token("ada")).now_or_never().is_none());
        // As far as the runtime comes before its thread does something else.
        tokio::task::yield_now().await;
    });
    other.block_on(async {
        for _ in 0..1_000 {
            if limit(&layer, "ada").await == 200_000 {
                return;
            }
            advance(Duration::from_secs(2)).await;
        }
        panic!("for half an hour and longer the key had no tier");
    });
    drop(stands_still);
}
