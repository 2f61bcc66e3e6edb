//! Handlers that work in line, one request at a time.

use std::time::{Duration, Instant};

use axum::middleware::{from_fn, map_response};
use futures::FutureExt;
use tollgate::{Key, Limiter, RedisStore, Rule};

use crate::http::{SLOTS, ask_beside, by_store, fleet, layer, serve, with_decision};
use crate::rig::{Rig, assert_none_failed, current_thread, few_workers, ms};

/// Between two requests of a client.
const REST: Duration = ms(4);

#[track_caller]
fn assert_harms_nobody(scenario: &str, path: &'static str, rest: Duration) {
    let rig = Rig::new();
    assert_harms_nobody_on(&rig, &rig.store, scenario, path, rest);
}

#[track_caller]
fn assert_harms_nobody_on(rig: &Rig, store: &RedisStore, scenario: &str, path: &'static str, rest: Duration) {
    let scenario = format!("{scenario}, on {} threads, clients rest {rest:?}", rig.threads());
    assert_none_failed(&scenario, |watch| {
        let layer = layer(store);
        let watched = layer.clone();
        watch.breaker_of(move || watched.clone().live().breaker_state());
        ask_beside(path, serve(rig, |app| app.layer(layer)), &rig.runtime, rest)
    });
}

#[test]
fn a_handler_that_keeps_its_thread_fails_no_request_of_others() {
    assert_harms_nobody("a handler that blocks 150 ms", "/blocks", Duration::ZERO);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn nor_does_one_in_a_server_that_is_mostly_idle() {
    assert_harms_nobody("a handler that blocks 150 ms", "/blocks", REST);
}

#[test]
fn nor_does_one_that_charges_before() {
    assert_harms_nobody("a handler that charges, then blocks 150 ms", "/charges", Duration::ZERO);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn nor_does_one_that_charges_before_in_a_server_that_is_mostly_idle() {
    assert_harms_nobody("a handler that charges, then blocks 150 ms", "/charges", REST);
}

#[test]
fn nor_does_one_that_asks_for_more_before() {
    assert_harms_nobody("a handler that checks an account, then blocks 150 ms", "/checks", Duration::ZERO);
}

/// Both of them, on another runtime.
#[track_caller]
fn assert_both_harm_nobody_on(rig: &Rig, store: &RedisStore) {
    assert_harms_nobody_on(rig, store, "a handler that blocks 150 ms", "/blocks", Duration::ZERO);
    assert_harms_nobody_on(rig, store, "a handler that charges, then blocks 150 ms", "/charges", Duration::ZERO);
}

#[test]
fn nor_do_both_on_two_workers() {
    let rig = Rig::on(few_workers(2));
    assert_both_harm_nobody_on(&rig, &rig.store);
}

/// While the only thread is kept, no reply is read: the budget has to be longer.
#[test]
fn nor_do_both_on_the_only_thread_of_a_runtime_for_less_than_the_budget() {
    let rig = Rig::on(current_thread());
    let patient = RedisStore::builder()
        .timeout(ms(2_000))
        .lazy()
        .connect(&rig.redis.url())
        .now_or_never()
        .expect("it does not wait")
        .expect("the URL is one");
    assert_both_harm_nobody_on(&rig, &patient);
}

/// A slot that is not released is free after its life, which is longer.
const BACK: Duration = Duration::from_secs(20);

#[test]
fn nor_does_one_behind_a_fleet_shedder_and_all_slots_are_released() {
    let rig = Rig::new();
    assert_none_failed("a handler that blocks 150 ms, behind a fleet shedder", |watch| {
        let layer = fleet(&rig.store);
        let watched = layer.clone();
        watch.breaker_of(move || watched.breaker_state());
        let address = serve(&rig, |app| app.layer(from_fn(with_decision)).layer(layer).layer(map_response(by_store)));
        ask_beside("/blocks", address, &rig.runtime, Duration::ZERO)
    });
    for policy in ["fleet", "fleet.others"] {
        let limiter = Limiter::new(rig.store.clone(), [Rule::new(policy, SLOTS)]);
        let (start, mut left) = (Instant::now(), 0);
        while left < SLOTS.limit() && start.elapsed() < BACK {
            let seen = rig.runtime.block_on(limiter.peek(&Key::new("global", "")));
            left = seen.expect("a decision").outcomes()[0].remaining();
        }
        assert_eq!(left, SLOTS.limit(), "{policy}: what is left after {BACK:?}");
    }
}
