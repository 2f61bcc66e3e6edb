//! Models of runners that were woken and never begin, as their threads are blocked.
//!
//! The items of other threads are handled all the same, as long as one thread runs. What the
//! blocked thread itself pushed is handled with the next item of any other thread.

use super::*;

/// One thread pushes and never runs what it woke. The other one's items are handled as soon as its
/// task ends.
#[test]
fn a_thread_that_blocks_keeps_no_other_one_from_having_its_items_handled() {
    for (first, most) in [(2, 2), (1, 2)] {
        explore(3, move || {
            let lane = Lane::new(first, most);
            let blocked = lane.worker(1, |worker| {
                worker.push(10);
            });
            let other = lane.worker(2, |worker| {
                worker.task(20);
                worker.lane.has_handled([20]);
                worker.task(21);
                worker.lane.has_handled([21]);
            });
            join([blocked, other]);
        });
    }
}

/// Two of three threads push and block: a third runner works for the third one.
#[test]
fn all_threads_but_one_may_block() {
    for (first, most) in [(3, 3), (1, 3)] {
        explore(2, move || {
            let lane = Lane::new(first, most);
            let blocked = [1, 2].map(|mark| {
                lane.worker(mark, move |worker| {
                    worker.push(10 * mark);
                })
            });
            let other = lane.worker(3, |worker| {
                for item in [30, 31] {
                    worker.task(item);
                    worker.lane.has_handled([item]);
                }
            });
            join(blocked.into_iter().chain([other]));
        });
    }
}

/// Items of a thread that blocked are handled with the next item of another one.
#[test]
fn what_was_pushed_before_a_thread_blocked_is_handled_with_what_others_push() {
    explore(3, || {
        let lane = Lane::new(2, 2);
        join([lane.worker(1, |worker| {
            worker.push(10);
            worker.push(11);
        })]);
        join([lane.worker(2, |worker| worker.task(20))]);
        lane.has_handled([10, 11, 20]);
    });
}

/// A thread that wakes two runners keeps the last one only; the first one runs elsewhere, and has
/// all items.
#[test]
fn a_thread_that_wakes_another_runner_before_it_blocks_leaves_the_first_one_to_others() {
    for (first, most) in [(2, 2), (1, 2), (1, 3)] {
        explore(3, move || {
            let lane = Lane::new(first, most);
            let settles = lane.worker(1, |worker| {
                worker.push(10);
                let wake = worker.lane.turns.another(1);
                worker.perform(wake);
                // It keeps the last one that it woke, and others may run those before.
                let kept = worker.woken.pop();
                worker.leave_to_anybody();
                kept
            });
            let kept = join([settles]);
            assert!(kept[0].is_some(), "it was woken");
            let mut other = Worker::new(&lane, 2);
            while other.steal() {}
            lane.has_handled([10]);
        });
    }
}

/// A runner pauses and its thread blocks: others wake another runner.
#[test]
fn a_runner_that_paused_and_does_not_go_on_keeps_no_item_from_being_handled() {
    explore(3, || {
        let lane = Lane::new(2, 2);
        let Turn::Work(core) = lane.turns.begin(0, &lane.wakers[0]) else { panic!("nobody works") };
        lane.is_woken[0].store(true, Ordering::Relaxed);
        assert!(lane.turns.pause(0, core).is_none(), "the lane goes on");
        let others = [1, 2].map(|mark| {
            lane.worker(mark, move |worker| {
                worker.task(10 * mark);
                worker.task(10 * mark + 1);
            })
        });
        join(others);
        lane.has_handled([10, 11, 20, 21]);
    });
}
