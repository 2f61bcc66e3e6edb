//! Handlers that work in line, one request at a time.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::RedisStore;

use crate::http::{ask_beside, layer, serve};
use crate::others::{Tally, ask};
use crate::rig::{assert_none_failed, connect, every_runtime, few_workers, ms, turn};
use crate::support::proxy::Proxy;
use crate::support::server::RedisServer;
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

/// Tokio wakes no other worker for a single task, and a worker that sleeps may not be the one that reads sockets. Of ten
/// callers, one gets its reply while some of the others are not sent yet.
#[test]
fn a_caller_that_keeps_its_thread_fails_nobody_who_waits_for_the_next_call() {
    let (_turn, redis, runtime) = (turn(), RedisServer::start(), few_workers(2));
    let proxy = Proxy::far(redis.port(), ms(20));
    let store = runtime.block_on(connect(&proxy.url()));
    assert_none_failed("150 ms in line after a reply, on 2 threads", |_| {
        let (answers, answered) = channel();
        let spawn = |number, work| {
            let (store, answers) = (store.clone(), answers.clone());
            runtime.spawn(async move {
                let began = Instant::now();
                let answer = ask(&store, number).await;
                answers.send((began.elapsed(), answer)).expect("the test waits");
                thread::sleep(work);
            });
        };
        spawn(0, ms(150));
        // Its reply comes before the others'.
        thread::sleep(ms(5));
        (1..10).for_each(|number| spawn(number, Duration::ZERO));
        Tally::of_answers(&answered, 10)
    });
}
