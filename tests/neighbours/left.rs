//! Decisions that were polled once, and then not any more.

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tollgate::{RedisStore, Store};

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, check, ms};

const WORK: Duration = ms(600);
const OTHERS: u32 = 20;
const APART: Duration = ms(10);

/// Polls a decision once, and keeps it until the end of something else.
async fn leave(store: RedisStore, number: usize, begin: Sender<()>, mut end: watch::Receiver<bool>) {
    let mut asked = pin!(store.decide(&[check(&format!("left-{number}"), 1)]).wait());
    let _ = futures::poll!(&mut asked);
    begin.send(()).expect("the test waits");
    end.wait_for(|end| *end).await.expect("the test ends it");
}

/// Polls a decision once, and keeps its thread.
async fn block(store: RedisStore, number: usize, begin: Sender<()>, all: Arc<Barrier>) {
    let mut asked = pin!(store.decide(&[check(&format!("left-{number}"), 1)]).wait());
    let _ = futures::poll!(&mut asked);
    // Each is on a worker of its own.
    all.wait();
    begin.send(()).expect("the test waits");
    thread::sleep(WORK);
}

#[track_caller]
fn await_all(begun: &Receiver<()>, count: usize) {
    for _ in 0..count {
        begun.recv_timeout(ms(5_000)).expect("each of them begins");
    }
}

fn ask_beside_left(rig: &Rig, count: usize) -> Tally {
    let ((begin, begun), (end, ended)) = (channel(), watch::channel(false));
    let left = (0..count).map(|number| leave(rig.store.clone(), number, begin.clone(), ended.clone()));
    let left: Vec<_> = left.map(|task| rig.runtime.spawn(task)).collect();
    await_all(&begun, count);
    let tally = rig.ask_steadily(OTHERS, APART);
    end.send_replace(true);
    rig.runtime.block_on(join_all(left));
    tally
}

fn ask_beside_blocked(rig: &Rig, count: usize) -> Tally {
    let ((begin, begun), all) = (channel(), Arc::new(Barrier::new(count)));
    let blocked = (0..count).map(|number| block(rig.store.clone(), number, begin.clone(), Arc::clone(&all)));
    let blocked: Vec<_> = blocked.map(|task| rig.runtime.spawn(task)).collect();
    await_all(&begun, count);
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(join_all(blocked));
    tally
}

#[test]
fn decisions_left_after_one_poll_stall_no_others() {
    let rig = Rig::new();
    for count in [1, 2, 64] {
        let scenario = format!("{count} decisions polled once and left");
        assert_none_failed(&scenario, |_| ask_beside_left(&rig, count));
    }
}

#[test]
fn decisions_whose_threads_block_after_one_poll_stall_no_others() {
    let rig = Rig::new();
    for count in 1..WORKERS {
        let scenario = format!("{count} decisions polled once, then 600 ms in line on {count} of {WORKERS} workers");
        assert_none_failed(&scenario, |_| ask_beside_blocked(&rig, count));
    }
}
