//! Decisions that were polled once, and then not any more.

use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tollgate::RedisStore;
use tollgate::store::{Ask, Store};

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, await_all, check, every_runtime, few_workers, ms};

const WORK: Duration = ms(600);
const OTHERS: u32 = 20;
const APART: Duration = ms(10);

/// Polls a decision once, and keeps it until the end of something else.
async fn leave(store: RedisStore, number: usize, tell: Sender<()>, mut end: watch::Receiver<bool>) {
    let mut asked = pin!(store.decide(&[check(&format!("left-{number}"), 1)], Ask::default()).wait());
    let _ = futures::poll!(&mut asked);
    tell.send(()).expect("the test waits");
    end.wait_for(|end| *end).await.expect("the test ends it");
}

/// Polls a decision once, and keeps its thread.
async fn block(store: RedisStore, number: usize, tell: Sender<()>, all: Arc<Barrier>) {
    let mut asked = pin!(store.decide(&[check(&format!("left-{number}"), 1)], Ask::default()).wait());
    let _ = futures::poll!(&mut asked);
    // Each is on a worker of its own.
    all.wait();
    tell.send(()).expect("the test waits");
    thread::sleep(WORK);
}

fn ask_beside_left(rig: &Rig, count: usize) -> Tally {
    let ((tell, heard), (end, ended)) = (channel(), watch::channel(false));
    let left = (0..count).map(|number| leave(rig.store.clone(), number, tell.clone(), ended.clone()));
    let left: Vec<_> = left.map(|task| rig.runtime.spawn(task)).collect();
    await_all(&heard, count);
    let tally = rig.ask_steadily(OTHERS, APART);
    end.send_replace(true);
    rig.runtime.block_on(join_all(left));
    tally
}

fn ask_beside_blocked(rig: &Rig, count: usize) -> Tally {
    let ((tell, heard), all) = (channel(), Arc::new(Barrier::new(count)));
    let blocked = (0..count).map(|number| block(rig.store.clone(), number, tell.clone(), Arc::clone(&all)));
    let blocked: Vec<_> = blocked.map(|task| rig.runtime.spawn(task)).collect();
    await_all(&heard, count);
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(join_all(blocked));
    tally
}

#[test]
fn decisions_left_after_one_poll_stall_no_others() {
    for rig in every_runtime() {
        for count in [2, 200] {
            let scenario = format!("{count} decisions polled once and left, on {} threads", rig.threads());
            assert_none_failed(&scenario, |_| ask_beside_left(&rig, count));
        }
    }
}

#[test]
fn threads_that_block_after_a_first_poll_stall_no_others() {
    for (workers, count) in [(WORKERS, 1), (WORKERS, WORKERS - 1), (2, 1)] {
        let rig = Rig::on(few_workers(workers));
        let scenario = format!("decisions polled once, then 600 ms in line, on {count} of {workers} workers");
        assert_none_failed(&scenario, |_| ask_beside_blocked(&rig, count));
    }
}
