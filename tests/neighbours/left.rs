//! Decisions that were polled once, and then not any more.

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tollgate::RedisStore;
use tollgate::store::{Ask, Store};

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, check, current_thread, few_workers, ms};

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

#[track_caller]
fn await_all(heard: &Receiver<()>, count: usize) {
    for _ in 0..count {
        heard.recv_timeout(ms(5_000)).expect("each of them begins");
    }
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

#[track_caller]
fn assert_left_harm_nobody(rig: &Rig, count: usize) {
    let scenario = format!("{count} decisions polled once and left, on {} threads", rig.threads());
    assert_none_failed(&scenario, |_| ask_beside_left(rig, count));
}

#[track_caller]
fn assert_blocked_harm_nobody(rig: &Rig, count: usize) {
    let scenario = format!("decisions polled once, then 600 ms in line, on {count} of {} workers", rig.threads());
    assert_none_failed(&scenario, |_| ask_beside_blocked(rig, count));
}

#[test]
fn two_decisions_left_after_one_poll_stall_no_others() {
    assert_left_harm_nobody(&Rig::new(), 2);
}

#[test]
fn nor_do_many() {
    assert_left_harm_nobody(&Rig::new(), 200);
}

#[test]
fn nor_do_they_on_two_workers_or_on_the_only_thread_of_a_runtime() {
    for runtime in [few_workers(2), current_thread()] {
        let rig = Rig::on(runtime);
        assert_left_harm_nobody(&rig, 2);
        assert_left_harm_nobody(&rig, 200);
    }
}

#[test]
fn a_thread_that_blocks_after_a_first_poll_stalls_no_others() {
    assert_blocked_harm_nobody(&Rig::new(), 1);
}

#[test]
fn nor_do_half_of_the_threads() {
    assert_blocked_harm_nobody(&Rig::new(), 2);
}

#[test]
fn nor_do_all_but_one() {
    assert_blocked_harm_nobody(&Rig::new(), WORKERS - 1);
}

#[test]
fn nor_does_one_of_two() {
    assert_blocked_harm_nobody(&Rig::on(few_workers(2)), 1);
}
