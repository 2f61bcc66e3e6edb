//! Runtimes that end, with decisions and settlements on their way.

use std::pin::Pin;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{Ask, Receipt, Store, StoreDecision};
use tollgate::{Error, RedisStore};

use crate::rig::{BUDGET, GRACE, Rig, assert_none_failed, check, current_thread, give_back, keys, ms, take};

type Asked = Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>;

/// Decisions that were asked for on a runtime, and are on their way.
fn begin(runtime: &Runtime, store: &RedisStore, count: usize) -> Vec<Asked> {
    runtime.block_on(async {
        let mut all = Vec::new();
        for key in keys("moved", count) {
            let mut asked: Asked = Box::pin(store.decide(&[check(&key, 1)], Ask::default()).wait());
            assert!(futures::poll!(&mut asked).is_pending(), "Redis is paused");
            all.push(asked);
        }
        all
    })
}

/// Waits on the rig's runtime for each, side by side; none may take longer than it may.
fn assert_all_end(rig: &Rig, asked: Vec<Asked>) {
    let (start, (answers, answered), count) = (Instant::now(), channel(), asked.len());
    for asked in asked {
        let answers = answers.clone();
        rig.runtime.spawn(async move {
            let answer = asked.await.map(drop);
            let _ = answers.send((start.elapsed(), answer.is_ok()));
        });
    }
    for number in 0..count {
        let waited = answered.recv_timeout(ms(3_000)).map(|(waited, _)| waited);
        assert!(waited.is_ok_and(|waited| waited < BUDGET + GRACE), "answer {number} of {count}: {waited:?}");
    }
}

#[test]
fn decisions_on_their_way_on_a_runtime_that_ends_are_answered_elsewhere_in_time() {
    let rig = Rig::new();
    let dead = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be built");
    dead.block_on(take(&rig.store, "dead", 1)).store();
    rig.redis.pause();
    let asked = begin(&dead, &rig.store, 50);
    dead.shutdown_background();
    assert_all_end(&rig, asked);
    rig.redis.resume();
    assert_none_failed("a runtime ended with 50 decisions on their way", |_| rig.ask_steadily(100, ms(2)));
}

/// Where and how receipts are settled.
type Settle = fn(RedisStore, Vec<Receipt>);

/// What is given back by `settle` is seen within a second, while others decide.
fn assert_arrives(scenario: &str, settle: Settle) {
    let rig = Rig::new();
    assert_none_failed(scenario, |_| {
        let keys = keys("settled", 20);
        let receipts = keys.iter().map(|key| rig.runtime.block_on(take(&rig.store, key, 5))).collect();
        let store = rig.store.clone();
        thread::spawn(move || settle(store, receipts)).join().expect("settling does not fail");
        let tally = rig.ask_steadily(50, ms(2));
        rig.assert_whole(&keys);
        tally
    });
}

fn give_all_back(store: &RedisStore, receipts: Vec<Receipt>) {
    for receipt in receipts {
        give_back(store, receipt);
    }
}

#[test]
fn what_is_settled_outside_any_runtime_or_as_the_last_on_one_arrives() {
    assert_arrives("settled by a thread without a runtime", |store, receipts| give_all_back(&store, receipts));
    assert_arrives("settled on a runtime that decided, and ends right after", |store, receipts| {
        current_thread().block_on(async {
            take(&store, "before", 1).await.store();
            give_all_back(&store, receipts);
        });
    });
}
