//! Handlers that work in line, one request at a time.

use std::time::Duration;

use tollgate::RedisStore;

use crate::http::{ask_beside, layer, serve};
use crate::rig::{assert_none_failed, every_runtime, ms};
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
                    ask_beside(path, serve(&rig, layer), &rig.runtime, *rest)
                });
            }
        }
    }
}
