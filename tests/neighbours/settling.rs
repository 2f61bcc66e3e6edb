//! A settlement, and then work in line.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::others::Tally;
use crate::rig::{Rig, assert_none_failed, give_back, ms, take};

const WORK: Duration = ms(600);
const OTHERS: u32 = 200;
/// All of them ask while the work is done.
const APART: Duration = ms(2);

/// A task settles and keeps its worker; others ask meanwhile.
fn ask_beside_work(rig: &Rig) -> Tally {
    let (begin, begun) = channel();
    let store = rig.store.clone();
    let work = rig.runtime.spawn(async move {
        let receipt = take(&store, "settled", 5).await;
        give_back(&store, receipt);
        // No task is woken by it, unlike by a channel of tokio's.
        begin.send(()).expect("the test waits");
        thread::sleep(WORK);
    });
    begun.recv().expect("the neighbour settles");
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(work).expect("the neighbour does not fail");
    tally
}

#[test]
fn work_after_a_settlement_stalls_no_decision_of_others() {
    let rig = Rig::new();
    assert_none_failed("a settlement, then 600 ms of work", |_| ask_beside_work(&rig));
    rig.assert_whole(&["settled".to_owned()]);
}
