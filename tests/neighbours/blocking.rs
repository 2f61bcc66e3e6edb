//! Handlers that work in line, one request at a time.

use std::time::{Duration, Instant};

use axum::middleware::{from_fn, map_response};
use tollgate::{Key, Limiter, RedisStore, Rule};

use crate::http::{SLOTS, ask_beside, by_store, fleet, layer, serve, with_decision};
use crate::rig::{Rig, assert_none_failed, every_runtime, ms};
use crate::support::slow::many;

/// How long clients rest between two requests; with a rest the server is mostly idle.
const RESTS: [&[Duration]; 2] = [&[Duration::ZERO], &[Duration::ZERO, ms(4)]];

/// While the only thread of a runtime is kept, no reply is read: the budget has to be longer.
#[test]
fn a_handler_that_keeps_its_thread_fails_no_request_of_others_nor_if_it_charges_or_asks_for_more_before() {
    for rig in every_runtime() {
        let (url, settings) = (rig.redis.url(), RedisStore::builder().timeout(ms(2_000)).lazy());
        let patient = rig.runtime.block_on(settings.connect(&url)).expect("the URL is one");
        let store = if rig.threads() == 1 { &patient } else { &rig.store };
        for path in ["/blocks", "/charges", "/checks"] {
            for rest in many(RESTS) {
                let scenario = format!("{path}, then 150 ms in line, on {} threads, rests {rest:?}", rig.threads());
                assert_none_failed(&scenario, |watch| {
                    let layer = layer(store);
                    let watched = layer.clone();
                    watch.breaker_of(move || watched.clone().live().breaker_state());
                    ask_beside(path, serve(&rig, |app| app.layer(layer)), &rig.runtime, *rest)
                });
            }
        }
    }
}

/// A slot that is not released is free after its life, which is longer.
const BACK: Duration = Duration::from_secs(20);

#[test]
fn a_handler_that_keeps_its_thread_behind_a_fleet_shedder_fails_nobody_and_all_slots_are_released() {
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
