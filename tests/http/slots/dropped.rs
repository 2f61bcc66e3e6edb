//! Slots that a handler takes on one thread while the future of its response is dropped on another.

use std::convert::Infallible;
use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Handle, Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};
use tower::{Layer, Service, service_fn};

const REQUESTS: u32 = 5_000;

/// How much longer each request in a row takes until it is dropped, so that the two meet at every point.
const SPINS: u32 = 300;

const SLOTS: Quota = Quota::concurrency(1_000_000);

fn user() -> Key {
    Key::new("user", "ada")
}

/// Drops the future of each response while its handler checks a concurrency on another thread, and keeps the handle;
/// returns how many requests held a slot afterwards.
fn held_after_drops(store: &MemoryStore, policy: Policy) -> usize {
    let (handles, of_request): (Sender<Handle>, Receiver<Handle>) = channel();
    let mut service =
        RateLimitLayer::new(store.clone(), policy).layer(service_fn(move |request: Request<Full<Bytes>>| {
            let handle = request.extensions().get::<Handle>().expect("the layer inserts it").clone();
            handles.send(handle).expect("the test waits for it");
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
    let exports = Policy::new("exports", SLOTS.slot_life(Duration::from_secs(3_600)));
    let rules = [Rule::new("exports", *exports.quota())];
    let limiter = Limiter::new(store.clone(), rules);
    let left = || limiter.peek(&user()).now_or_never().expect("at once").expect("in memory").outcomes()[0].remaining();
    let (to_handler, (begun, begins), (done, is_done)) = (channel::<Handle>(), channel(), channel());
    let (to_handler, requests) = to_handler;
    let checker = thread::spawn(move || {
        for handle in requests {
            begun.send(()).expect("the test waits for it");
            let checked = handle.check(&exports, user()).now_or_never().expect("at once").expect("in memory");
            assert!(checked.is_allowed());
            done.send(handle).expect("the test waits for it");
        }
    });
    let mut held = 0;
    for number in 0..REQUESTS {
        let before = left();
        let response = service.call(Request::new(Full::default()));
        to_handler.send(of_request.recv().expect("the service was called")).expect("the handler runs");
        begins.recv().expect("the handler runs");
        (0..number % SPINS * 3).for_each(|_| spin_loop());
        drop(response);
        let _handle = is_done.recv().expect("the handler runs");
        held += usize::from(left() != before);
    }
    drop(to_handler);
    checker.join().expect("all checks were allowed");
    held
}

#[test]
fn a_response_that_is_dropped_while_its_handler_takes_a_slot_leaves_none_to_the_handle() {
    let store = MemoryStore::new();
    assert_eq!(held_after_drops(&store, Policy::new("plain", Quota::per_hour(1_000_000))), 0);
    assert_eq!(held_after_drops(&store, Policy::new("metered", Quota::per_hour(1_000_000)).metered()), 0);
}
