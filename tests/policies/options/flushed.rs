//! When it is settled what a handler charges and refunds: with the response, at a flush, and with the last handle.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use tollgate::response::ActualCost;
use tollgate::store::Change;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tollgate_test::{Recorded, RecordingStore};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Answer, HOUR, Rig, Service, Text, background, get, line, on_each_store, send};
use crate::support::soon::soon;
use crate::support::time::memory;

const TEN: Quota = Quota::fixed_window(10, HOUR);

fn metered() -> Policy {
    Policy::new("metered", TEN).metered()
}

/// A layer over a handler that makes the response, to which its handle is added.
fn handled<F>(layer: &RateLimitLayer, handler: impl Fn(RateLimitHandle) -> F + Clone + Send + 'static) -> Service
where
    F: Future<Output = Response<Text>> + Send,
{
    BoxCloneService::new(layer.layer(service_fn(move |request: Request<Text>| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives a handle").clone();
        let serving = handler(handle.clone());
        async move {
            let mut response = serving.await;
            response.extensions_mut().insert(handle);
            Ok::<_, Infallible>(response)
        }
    })))
}

/// The handle that is kept with a response.
fn kept(response: &Answer) -> &RateLimitHandle {
    response.extensions().get().expect("it was kept")
}

fn really(units: u64) -> Response<Text> {
    let mut response = Response::new(Text::default());
    response.extensions_mut().insert(ActualCost(units));
    response
}

/// A store that records what is settled, and a layer over it.
#[derive(Clone)]
struct Watched {
    store: RecordingStore<FailingStore<MemoryStore>>,
    failing: FailingStore<MemoryStore>,
}

impl Watched {
    fn new() -> Self {
        let failing = FailingStore::new(memory(&ManualClock::new()));
        Self { store: RecordingStore::new(failing.clone()), failing }
    }

    fn layer(&self) -> RateLimitLayer {
        RateLimitLayer::new(self.store.clone(), metered())
    }

    /// What was settled so far.
    fn settled(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for call in self.store.recorded() {
            if let Recorded::Settle(_, settlements) = call {
                changes.extend(settlements.iter().map(|settlement| settlement.change));
            }
        }
        changes
    }

    async fn left(&self) -> u64 {
        let mut rig = Rig::memory();
        rig.store = Arc::new(self.failing.clone());
        rig.left_of_all("metered", TEN).await
    }
}

#[tokio::test]
async fn what_a_handler_changes_is_settled_once_with_the_response() {
    let watched = Watched::new();
    let seen = watched.clone();
    let service = handled(&watched.layer(), move |handle| {
        handle.charge(3);
        handle.charge(2);
        handle.refund(1);
        assert_eq!(seen.settled(), []);
        async { Response::new(Text::default()) }
    });
    let response = send(&service, get()).await;
    assert_eq!((line(&response, "x-ratelimit-remaining"), watched.settled()), ("5", vec![Change::Charge(4)]));
    let service = handled(&watched.layer(), |handle| {
        handle.charge(3);
        handle.refund(3);
        async { Response::new(Text::default()) }
    });
    let response = send(&service, get()).await;
    assert_eq!((line(&response, "x-ratelimit-remaining"), watched.settled().len()), ("4", 1), "nothing has changed");
}

#[tokio::test]
async fn what_changes_after_the_response_waits_for_a_flush_or_the_end_of_the_last_handle() {
    let watched = Watched::new();
    let service = handled(&watched.layer(), |_| async { Response::new(Text::default()) });
    let response = send(&service, get()).await;
    let handle = kept(&response);
    handle.charge(2);
    handle.charge(3);
    background().await;
    assert_eq!(watched.settled(), []);
    handle.flush().await.expect("the store works");
    handle.flush().await.expect("nothing has changed");
    assert_eq!(watched.settled(), [Change::Charge(5)]);
    let last = handle.clone();
    last.refund(2);
    drop(response);
    background().await;
    assert_eq!(watched.settled(), [Change::Charge(5)]);
    drop(last);
    assert_eq!(watched.settled(), [Change::Charge(5), Change::Refund(2)]);
    assert_eq!(watched.left().await, 6);
}

#[tokio::test]
async fn while_a_settlement_is_in_flight_changes_accumulate() {
    let watched = Watched::new();
    let seen = watched.clone();
    let service = handled(&watched.layer(), move |handle| {
        let seen = seen.clone();
        async move {
            let held = seen.failing.hold();
            let flush = |handle: RateLimitHandle| tokio::spawn(async move { handle.flush().await });
            handle.charge(3);
            let first = flush(handle.clone());
            background().await;
            handle.charge(2);
            handle.charge(1);
            let others = [flush(handle.clone()), flush(handle.clone())];
            background().await;
            assert_eq!(seen.settled(), [Change::Charge(3)]);
            held.release();
            for flushed in join_all([first].into_iter().chain(others)).await {
                flushed.expect("it ends").expect("the store works");
            }
            assert_eq!(seen.settled(), [Change::Charge(3), Change::Charge(3)]);
            Response::new(Text::default())
        }
    });
    assert_eq!(line(&send(&service, get()).await, "x-ratelimit-remaining"), "3");
}

#[tokio::test]
async fn the_result_of_a_flush_that_nobody_waits_for_is_applied() {
    let watched = Watched::new();
    let seen = watched.clone();
    let service = handled(&watched.layer(), move |handle| {
        let seen = seen.clone();
        async move {
            let held = seen.failing.hold();
            handle.charge(4);
            assert!(handle.flush().now_or_never().is_none());
            assert_eq!(seen.settled(), [Change::Charge(4)]);
            held.release();
            background().await;
            really(0)
        }
    });
    assert_eq!(line(&send(&service, get()).await, "x-ratelimit-remaining"), "10");
    assert_eq!(watched.settled(), [Change::Charge(4), Change::Refund(5)]);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_comes_during_a_flush_waits_for_both_and_shows_what_is_left() {
    for (charged, real, left) in [(9, 0, 10), (9, 3, 7), (100, 5, 5)] {
        let watched = Watched::new();
        let seen = watched.clone();
        let service = handled(&watched.layer(), move |handle| {
            let held = seen.failing.hold();
            handle.charge(charged);
            assert!(handle.flush().now_or_never().is_none());
            async move {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    held.release();
                });
                really(real)
            }
        });
        let response = service.oneshot(get()).await.expect("the service does not fail");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{charged}, really {real}");
        assert_eq!(watched.left().await, left, "{charged}, really {real}");
    }
}

#[tokio::test]
async fn a_handle_that_is_dropped_outside_of_a_runtime_settles_all_the_same() {
    on_each_store(async |rig| {
        let service = handled(&rig.layer([metered()]), |_| async { Response::new(Text::default()) });
        let mut response = send(&service, get()).await;
        let handle = response.extensions_mut().remove::<RateLimitHandle>().expect("it was kept");
        let dropped = std::thread::spawn(move || {
            handle.charge(2);
            drop(handle);
        });
        dropped.join().expect("it does not panic");
        soon(async { while rig.left_of_all("metered", TEN).await != 7 {} }).await;
    })
    .await;
}

#[tokio::test]
async fn a_flush_settles_the_policies_of_every_layer() {
    on_each_store(async |rig| {
        let layer = |name| rig.layer([Policy::new(name, TEN).metered()]);
        let inside = handled(&layer("inner"), |handle| async move {
            handle.charge(4);
            handle.flush().await.expect("the store works");
            Response::new(Text::default())
        });
        let service = layer("outer").layer(inside);
        let response = service.oneshot(get()).await.expect("the service does not fail");
        for name in ["inner", "outer"] {
            assert_eq!(rig.left_of_all(name, TEN).await, 5, "{}: {name}", rig.name);
        }
        drop(response);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handles_of_one_request_add_up_on_several_threads() {
    const AMPLE: Quota = Quota::fixed_window(10_000, HOUR);
    on_each_store(async |rig| {
        let policy = Policy::new("metered", AMPLE).metered();
        let service = handled(&rig.layer([policy]), |_| async { Response::new(Text::default()) });
        let response = send(&service, get()).await;
        let use_up = |handle: RateLimitHandle| async move {
            for number in 0..400 {
                handle.charge(3);
                handle.refund(1);
                if number % 50 == 49 {
                    handle.flush().await.expect("the store works");
                }
            }
        };
        let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(use_up(kept(&response).clone()))).collect();
        for task in tasks {
            task.await.expect("it ends");
        }
        assert_eq!(rig.left_of_all("metered", AMPLE).await, 10_000 - 1 - 4 * 400 * 2, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_flush_whose_charge_another_flush_sent_has_its_error() {
    let watched = Watched::new();
    let service = handled(&watched.layer(), |_| async { Response::new(Text::default()) });
    let response = send(&service, get()).await;
    let handle = kept(&response);
    let held = watched.failing.hold();
    let flush = |handle: RateLimitHandle| tokio::spawn(async move { handle.flush().await });
    handle.charge(1);
    let first = flush(handle.clone());
    background().await;
    handle.charge(2);
    let second = flush(handle.clone());
    background().await;
    handle.charge(4);
    let third = flush(handle.clone());
    background().await;
    watched.failing.fail();
    held.release();
    let results = join_all([first, second, third]).await;
    let results: Vec<_> = results.into_iter().map(|result| result.expect("it ends").is_ok()).collect();
    assert_eq!(watched.settled(), [Change::Charge(1), Change::Charge(6)]);
    assert_eq!(results, [true, false, false], "which flushes were told that all is settled");
}

#[tokio::test]
async fn a_handle_that_is_dropped_by_a_panic_settles_all_the_same() {
    let watched = Watched::new();
    let service = handled(&watched.layer(), |_| async { Response::new(Text::default()) });
    let mut response = send(&service, get()).await;
    let handle = response.extensions_mut().remove::<RateLimitHandle>().expect("it was kept");
    let stream = tokio::spawn(async move {
        handle.charge(2);
        panic!("as the test wants");
    });
    assert!(stream.await.is_err());
    background().await;
    assert_eq!(watched.settled(), [Change::Charge(2)]);
}

#[tokio::test]
async fn a_store_that_panics_as_a_panicking_handler_is_settled_does_not_end_the_process() {
    let watched = Watched::new();
    let failing = watched.failing.clone();
    let layer = RateLimitLayer::new(watched.store.clone(), metered().refund_dropped());
    let service = handled(&layer, move |_| {
        failing.fail_with(|| panic!("the store panics"));
        async { panic!("the handler panics") }
    });
    let ended = tokio::spawn(async move { service.oneshot(get()).await.is_ok() }).await;
    assert!(ended.is_err());
}
