//! A settlement, and then work in line.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tollgate::RedisStore;
use tollgate::store::Receipt;

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, await_all, current_thread, few_workers, give_back, keys, ms, take};

const WORK: Duration = ms(600);
const OTHERS: u32 = 200;
/// All of them ask while the work is done.
const APART: Duration = ms(2);

/// Settles, and keeps its worker once all have settled.
fn work(store: &RedisStore, receipt: Receipt, tell: &Sender<()>, all: &Barrier) {
    give_back(store, receipt);
    all.wait();
    // No task is woken by it, unlike by a channel of tokio's.
    tell.send(()).expect("the test waits");
    thread::sleep(WORK);
}

/// Tasks settle and keep their workers; others ask meanwhile.
fn ask_beside_work(rig: &Rig, keys: &[String]) -> Tally {
    let ((tell, heard), all) = (channel(), Arc::new(Barrier::new(keys.len())));
    let receipts: Vec<_> = keys.iter().map(|key| rig.runtime.block_on(take(&rig.store, key, 5))).collect();
    let spawn = |receipt| {
        let (store, tell, all) = (rig.store.clone(), tell.clone(), Arc::clone(&all));
        rig.runtime.spawn(async move { work(&store, receipt, &tell, &all) })
    };
    let work: Vec<_> = receipts.into_iter().map(spawn).collect();
    await_all(&heard, keys.len());
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(join_all(work));
    tally
}

#[test]
fn work_after_a_settlement_stalls_no_decision_of_others() {
    for (workers, count) in [(WORKERS, 1), (WORKERS, WORKERS - 1), (2, 1)] {
        let (rig, keys) = (Rig::on(few_workers(workers)), keys("settled", count));
        let scenario = format!("settlements, then 600 ms of work, on {count} of {workers} workers");
        assert_none_failed(&scenario, |_| ask_beside_work(&rig, &keys));
        rig.assert_whole(&keys);
    }
}

/// What is given back by `settle` is seen within a second, while others decide.
fn assert_arrives(scenario: &str, settle: fn(&RedisStore, Vec<Receipt>)) {
    let rig = Rig::new();
    assert_none_failed(scenario, |_| {
        let keys = keys("settled", 20);
        let receipts = keys.iter().map(|key| rig.runtime.block_on(take(&rig.store, key, 5))).collect();
        let store = rig.store.clone();
        thread::spawn(move || settle(&store, receipts)).join().expect("settling does not fail");
        let tally = rig.ask_steadily(50, APART);
        rig.assert_whole(&keys);
        tally
    });
}

#[test]
fn what_is_settled_outside_any_runtime_or_as_the_last_on_one_arrives() {
    fn give_all_back(store: &RedisStore, receipts: Vec<Receipt>) {
        for receipt in receipts {
            give_back(store, receipt);
        }
    }
    assert_arrives("settled by a thread without a runtime", give_all_back);
    assert_arrives("settled on a runtime that decided, and ends right after", |store, receipts| {
        current_thread().block_on(async {
            take(store, "before", 1).await.store();
            give_all_back(store, receipts);
        });
    });
}
