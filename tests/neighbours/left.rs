//! Decisions that were polled once, and then not any more.

use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::store::{Ask, Store};

use crate::others::Tally;
use crate::rig::{Rig, WORKERS, assert_none_failed, await_all, check, every_runtime, few_workers, ms};

const WORK: Duration = ms(600);
const OTHERS: u32 = 20;
const APART: Duration = ms(10);

/// Has decisions polled once, each by a task which then does something else, and others asked meanwhile.
fn ask_beside<F>(rig: &Rig, count: usize, then: impl Fn() -> F) -> Tally
where
    F: Future<Output = ()> + Send + 'static,
{
    let (tell, heard) = channel();
    let leave = |number: usize| {
        let (store, tell, then) = (rig.store.clone(), tell.clone(), then());
        rig.runtime.spawn(async move {
            let mut asked = pin!(store.decide(&[check(&format!("left-{number}"), 1)], Ask::default()).wait());
            let _ = futures::poll!(&mut asked);
            tell.send(()).expect("the test waits");
            then.await;
        })
    };
    let left: Vec<_> = (0..count).map(leave).collect();
    await_all(&heard, count);
    let tally = rig.ask_steadily(OTHERS, APART);
    rig.runtime.block_on(join_all(left));
    tally
}

#[test]
fn decisions_left_after_one_poll_stall_no_others() {
    for rig in every_runtime() {
        for count in [2, 200] {
            let scenario = format!("{count} decisions polled once and left, on {} threads", rig.threads());
            assert_none_failed(&scenario, |_| ask_beside(&rig, count, || async { sleep(WORK).await }));
        }
    }
}

#[test]
fn threads_that_block_after_a_first_poll_stall_no_others() {
    for (workers, count) in [(WORKERS, 1), (WORKERS, WORKERS - 1), (2, 1)] {
        let rig = Rig::on(few_workers(workers));
        let scenario = format!("decisions polled once, then 600 ms in line, on {count} of {workers} workers");
        assert_none_failed(&scenario, |_| {
            // Each is on a worker of its own.
            let all = Arc::new(Barrier::new(count));
            ask_beside(&rig, count, || {
                let all = Arc::clone(&all);
                async move {
                    all.wait();
                    thread::sleep(WORK);
                }
            })
        });
    }
}
