//! Handlers that work in line, one request at a time.

use crate::http::{ask_beside, layer, serve};
use crate::rig::{Rig, assert_none_failed};

fn assert_harms_nobody(scenario: &str, path: &'static str) {
    let rig = Rig::new();
    assert_none_failed(scenario, |watch| {
        let layer = layer(&rig.store);
        watch.breaker_of(&layer);
        ask_beside(path, serve(&rig, layer), &rig.runtime)
    });
}

#[test]
fn a_handler_that_keeps_its_thread_stalls_no_request_of_others() {
    assert_harms_nobody("a handler that blocks 150 ms", "/blocks");
}

#[test]
fn nor_does_one_that_charges_before() {
    assert_harms_nobody("a handler that charges, then blocks 150 ms", "/charges");
}

#[test]
fn nor_does_one_that_asks_for_more_before() {
    assert_harms_nobody("a handler that checks an account, then blocks 150 ms", "/checks");
}
