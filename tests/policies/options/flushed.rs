//! When it is settled what a handler charges and refunds: with the response, at a flush, and with the last handle.

use std::convert::Infallible;
use std::future::Future;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use tokio::task::JoinHandle;
use tollgate::response::ActualCost;
use tollgate::store::Change::{self, Charge, Refund};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tollgate_test::{Recorded, RecordingStore};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Service, Text, background, get, line, on_each_store, send};
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

/// The only handle of a request that was served.
async fn handle_of(layer: &RateLimitLayer) -> RateLimitHandle {
    let service = handled(layer, |_| async { Response::new(Text::default()) });
    send(&service, get()).await.extensions_mut().remove().expect("it was kept")
}

fn really(units: u64) -> Response<Text> {
    let mut response = Response::new(Text::default());
    response.extensions_mut().insert(ActualCost(units));
    response
}

/// Begins a flush.
async fn flush(handle: &RateLimitHandle) -> JoinHandle<Result<(), Error>> {
    let handle = handle.clone();
    let flush = tokio::spawn(async move { handle.flush().await });
    background().await;
    flush
}

/// A store that records what is settled, around one that fails where a test says so.
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
}

#[tokio::test]
async fn what_a_handler_changes_is_settled_once_with_the_response() {
    let watched = Watched::new();
    for (charges, refund, left, settled) in [([3, 2], 1, "5", &[Charge(4)][..]), ([3, 0], 3, "4", &[Charge(4)])] {
        let seen = watched.clone();
        let service = handled(&watched.layer(), move |handle| {
            let before = seen.settled().len();
            for units in charges {
                handle.charge(units);
            }
            handle.refund(refund);
            assert_eq!(seen.settled().len(), before, "not yet");
            async { Response::new(Text::default()) }
        });
        let response = send(&service, get()).await;
        assert_eq!(line(&response, "x-ratelimit-remaining"), left);
        assert_eq!(watched.settled(), settled, "what has not changed is not settled");
    }
}

#[tokio::test]
async fn what_changes_after_the_response_waits_for_a_flush_or_the_end_of_the_last_handle() {
    let watched = Watched::new();
    let handle = handle_of(&watched.layer()).await;
    handle.charge(2);
    handle.charge(3);
    background().await;
    assert_eq!(watched.settled(), []);
    handle.flush().await.expect("the store works");
    handle.flush().await.expect("nothing has changed");
    assert_eq!(watched.settled(), [Charge(5)]);
    let last = handle.clone();
    last.refund(2);
    drop(handle);
    background().await;
    assert_eq!(watched.settled(), [Charge(5)]);
    drop(last);
    assert_eq!(watched.settled(), [Charge(5), Refund(2)]);
}

#[tokio::test]
async fn a_handle_that_is_dropped_outside_of_a_runtime_settles_all_the_same() {
    on_each_store(async |rig| {
        let handle = handle_of(&rig.layer([metered()])).await;
        let dropped = thread::spawn(move || {
            handle.charge(2);
            drop(handle);
        });
        dropped.join().expect("it does not panic");
        rig.until_left_of_all("metered", TEN, 7).await;
    })
    .await;
    let watched = Watched::new();
    let handle = handle_of(&watched.layer()).await;
    let panicked = tokio::spawn(async move {
        handle.charge(2);
        panic!("as the test wants");
    });
    assert!(panicked.await.is_err());
    background().await;
    assert_eq!(watched.settled(), [Charge(2)], "one that is dropped by a panic does, too");
}

#[tokio::test]
async fn while_a_settlement_is_in_flight_changes_accumulate_and_each_flush_has_the_result_of_its_own() {
    for fails in [false, true] {
        let watched = Watched::new();
        let handle = handle_of(&watched.layer()).await;
        let held = watched.failing.hold();
        let mut flushes = Vec::new();
        for units in [1, 2, 4] {
            handle.charge(units);
            flushes.push(flush(&handle).await);
        }
        assert_eq!(watched.settled(), [Charge(1)]);
        if fails {
            watched.failing.fail();
        }
        held.release();
        let results = join_all(flushes).await.into_iter().map(|flushed| flushed.expect("it ends").is_ok());
        assert_eq!(results.collect::<Vec<_>>(), [true, !fails, !fails], "which were told that all is settled");
        assert_eq!(watched.settled(), [Charge(1), Charge(6)]);
    }
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
            assert_eq!(seen.settled(), [Charge(4)]);
            held.release();
            background().await;
            really(0)
        }
    });
    assert_eq!(line(&send(&service, get()).await, "x-ratelimit-remaining"), "10");
    assert_eq!(watched.settled(), [Charge(4), Refund(5)]);
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
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handles_of_one_request_add_up_on_several_threads() {
    const AMPLE: Quota = Quota::fixed_window(10_000, HOUR);
    on_each_store(async |rig| {
        let handle = handle_of(&rig.layer([Policy::new("metered", AMPLE).metered()])).await;
        let use_up = |handle: RateLimitHandle| async move {
            for number in 0..400 {
                handle.charge(3);
                handle.refund(1);
                if number % 50 == 49 {
                    handle.flush().await.expect("the store works");
                }
            }
        };
        for ended in join_all((0..4).map(|_| tokio::spawn(use_up(handle.clone())))).await {
            ended.expect("it ends");
        }
        assert_eq!(rig.left_of_all("metered", AMPLE).await, 10_000 - 1 - 4 * 400 * 2, "{}", rig.name);
    })
    .await;
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
