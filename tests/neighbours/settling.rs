//! A settlement, and then work in line.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tollgate::RedisStore;
use tollgate::store::Receipt;

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, few_workers, give_back, ms, take};

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
    for _ in &work {
        heard.recv_timeout(ms(5_000)).expect("each of them settles");
    }
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(join_all(work));
    tally
}

#[track_caller]
fn assert_harm_nobody(rig: &Rig, count: usize) {
    let keys: Vec<_> = (0..count).map(|number| format!("settled-{number}")).collect();
    let scenario = format!("settlements, then 600 ms of work, on {count} of {} workers", rig.threads());
    assert_none_failed(&scenario, |_| ask_beside_work(rig, &keys));
    rig.assert_whole(&keys);
}

#[test]
fn work_after_a_settlement_stalls_no_decision_of_others() {
    assert_harm_nobody(&Rig::new(), 1);
}

#[test]
fn nor_does_such_work_on_all_threads_but_one() {
    assert_harm_nobody(&Rig::new(), WORKERS - 1);
}

#[test]
fn nor_does_such_work_on_one_of_two() {
    assert_harm_nobody(&Rig::on(few_workers(2)), 1);
}
