//! Handlers that work in line, one request at a time.

use std::time::Duration;

use crate::http::{ask_beside, layer, serve};
use crate::rig::{Rig, assert_none_failed, ms};

/// Between two requests of a client.
const REST: Duration = ms(4);

#[track_caller]
fn assert_harms_nobody(scenario: &str, path: &'static str, rest: Duration) {
    let rig = Rig::new();
    let scenario = format!("{scenario}, clients rest {rest:?}");
    assert_none_failed(&scenario, |watch| {
        let layer = layer(&rig.store);
        watch.breaker_of(&layer);
        ask_beside(path, serve(&rig, layer), &rig.runtime, rest)
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
