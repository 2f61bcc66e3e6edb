//! What a worker shedder sheds: by class, by chance, and by samples that are a second apart.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Request, Response};
use tollgate::test_util::ManualClock;
use tollgate_shed::{Class, WorkerShedLayer};
use tower::{Layer, Service as _, ServiceExt};
use tower_test::mock;
use tracing::Level;

use super::rig::{Load, SECOND, bad_for, behind, hello, is_shed, measured, of_class, pass, said, send, shed_of};
use crate::log::Log;

#[test]
fn classes_are_shed_in_their_order_and_critical_requests_never() {
    const ALL: [Class; 4] = [Class::Test, Class::Read, Class::Write, Class::Critical];
    let shed = |seconds| ALL.map(|class| shed_of(&mut bad_for(seconds).1, 300, class));
    assert_eq!(shed(30), [0; 4]);
    let [test, others @ ..] = shed(35);
    assert!((50..250).contains(&test) && others == [0; 3], "{test} {others:?}");
    let [test, read, others @ ..] = shed(60);
    assert!(test == 300 && (50..250).contains(&read) && others == [0; 2], "{test} {read} {others:?}");
    let [test, read, write, critical] = shed(100);
    assert!([test, read, critical] == [300, 300, 0] && (50..250).contains(&write), "{write}");
    assert_eq!(shed(120), [300, 300, 300, 0]);
    assert_eq!(shed(3_600), [300, 300, 300, 0]);
}

#[test]
fn clones_and_services_of_a_layer_share_its_level_and_a_setter_makes_another() {
    let (layer, service) = bad_for(120);
    let clone = layer.clone();
    assert!(clone.level() >= 1.0);
    assert_eq!(shed_of(&mut behind(&clone, hello()), 10, Class::Test), 10);
    assert_eq!(shed_of(&mut service.clone(), 10, Class::Test), 10);
    assert!(layer.min_retry_after(Duration::ZERO).level() <= 0.0);
}

#[test]
fn a_closure_is_called_once_a_second_and_may_use_the_layer() {
    let (calls, clock) = (Arc::new(AtomicU32::new(0)), ManualClock::new());
    let layer = Arc::new(OnceLock::<WorkerShedLayer>::new());
    let (counted, used) = (Arc::clone(&calls), Arc::clone(&layer));
    let measure = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let shedder = used.get().expect("it was made");
        // A request within the closure is one too.
        assert!(!is_shed(&send(&mut behind(shedder, hello()), of_class(Class::Test))));
        shedder.level()
    };
    let shedder = WorkerShedLayer::measured("worker", measure).clock(clock.clone());
    let mut service = behind(layer.get_or_init(|| shedder), hello());
    for _ in 0..100 {
        send(&mut service, of_class(Class::Read));
        clock.advance(SECOND / 10);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 10);
}

#[test]
fn a_closure_that_panics_does_so_in_one_request() {
    let clock = ManualClock::new();
    let layer = WorkerShedLayer::measured("worker", || panic!("no measure")).clock(clock.clone());
    let mut service = behind(&layer, hello());
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| send(&mut service, of_class(Class::Read)))).is_err());
        assert!(!is_shed(&send(&mut service, of_class(Class::Read))));
        clock.advance(SECOND);
    }
}

#[test]
fn what_a_closure_does_not_know_changes_nothing_and_is_logged() {
    let (log, clock) = (Log::default(), ManualClock::new());
    let _noting = log.note(Level::WARN);
    let layer = WorkerShedLayer::measured("worker", || f64::NAN).clock(clock.clone());
    pass(&mut behind(&layer.clone().classify(said), hello()), &clock, 300);
    assert!(layer.level() <= 0.0);
    let lines = log.lines("utilization_unknown");
    assert!(lines.len() == 1 && lines[0].contains("policy=\"worker\""), "one in a period: {lines:?}");
}

#[test]
fn a_clock_that_steps_back_neither_stops_nor_keeps_up_shedding() {
    let (log, load, clock) = (Log::default(), Load::default(), ManualClock::new());
    let _noting = log.note(Level::INFO);
    let (layer, mut service) = measured(&load, &clock);
    let back = || clock.set(clock.now().saturating_sub(3_600 * SECOND));
    load.set(100);
    pass(&mut service, &clock, 60);
    back();
    pass(&mut service, &clock, 62);
    assert!(layer.level() >= 1.0, "{}", layer.level());
    assert_eq!(shed_of(&mut service, 10, Class::Write), 10);
    load.set(10);
    pass(&mut service, &clock, 30);
    back();
    pass(&mut service, &clock, 242);
    assert!(layer.level() <= 0.0, "{}", layer.level());
    assert_eq!(log.count("code=\"shedding_ended\""), 1, "{}", log.text());
}

#[tokio::test]
async fn the_ready_instance_is_called_and_none_is_for_a_request_that_is_shed() {
    let (layer, _) = bad_for(120);
    let (inner, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = layer.layer(inner);
    handle.allow(1);
    let shed = service.ready().await.expect("ready").call(of_class(Class::Write)).await.expect("a response");
    assert!(is_shed(&shed));
    // It has not used the readiness up: the mock panics if it is called without.
    let response = service.ready().await.expect("ready").call(of_class(Class::Critical));
    let (request, respond) = handle.next_request().await.expect("it is called");
    assert_eq!(request.extensions().get(), Some(&Class::Critical));
    respond.send_response(Response::new(String::new()));
    assert_eq!(response.await.expect("a response").status(), 200);
}
