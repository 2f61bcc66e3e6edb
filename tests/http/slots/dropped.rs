//! Slots that a handler takes on one thread while the future of its response is dropped on another.

use std::convert::Infallible;
use std::future::pending;
use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use futures::FutureExt;
use http::{Request, Response};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule};
use tower::{Layer, Service, service_fn};

const REQUESTS: u32 = 5_000;

/// Futures are dropped after fewer turns than this, another number each time, so that drops meet checks at any point.
const TURNS: u32 = 900;

const SLOTS: Quota = Quota::concurrency(1_000_000);

fn user() -> Key {
    Key::new("user", "ada")
}

/// Takes a slot for each handle, on a thread of its own: sends `()` before the check, and the handle after it.
fn check_each(
    handles: Receiver<RateLimitHandle>,
    begun: Sender<()>,
    checked: Sender<RateLimitHandle>,
) -> thread::JoinHandle<()> {
    let exports = Policy::new("exports", SLOTS);
    thread::spawn(move || {
        for handle in handles {
            begun.send(()).expect("the test receives it");
            let decision = handle.check(&exports, &user()).now_or_never().expect("memory replies at once");
            assert!(decision.expect("memory does not fail").is_allowed());
            checked.send(handle).expect("the test receives it");
        }
    })
}

/// Returns how many requests held a slot after their future was dropped, with nothing but their handle left.
fn held_after_drops(policy: Policy) -> usize {
    let (called, calls) = channel();
    let service = service_fn(move |request: Request<String>| {
        called.send(request.extensions().get::<RateLimitHandle>().cloned()).expect("the test receives it");
        pending::<Result<Response<String>, Infallible>>()
    });
    let store = MemoryStore::new();
    let mut service = RateLimitLayer::new(store.clone(), policy).layer(service);
    let limiter = Limiter::new(store, [Rule::new("exports", SLOTS)]);
    let left = || {
        let seen = limiter.peek(&user()).now_or_never().expect("memory replies at once");
        seen.expect("memory does not fail").outcomes()[0].remaining()
    };
    let ((to_check, handles), (begun, begins), (checked, ends)) = (channel(), channel(), channel());
    let checks = check_each(handles, begun, checked);
    let mut held = 0;
    for number in 0..REQUESTS {
        let response = service.call(Request::new(String::new()));
        let handle = calls.try_recv().expect("a plain request is passed on at once").expect("the layer inserts it");
        to_check.send(handle).expect("the thread runs");
        begins.recv().expect("the thread runs");
        (0..number * 7 % TURNS).for_each(|_| spin_loop());
        drop(response);
        let handle = ends.recv().expect("the check was allowed");
        held += usize::from(left() != SLOTS.limit());
        drop(handle);
    }
    drop(to_check);
    checks.join().expect("all checks were allowed");
    held
}

#[test]
fn a_handle_keeps_no_slot_that_it_took_while_its_response_was_dropped() {
    assert_eq!(held_after_drops(Policy::new("plain", Quota::per_hour(1_000_000))), 0);
    assert_eq!(held_after_drops(Policy::new("metered", Quota::per_hour(1_000_000)).metered()), 0);
}
