//! Models of runners that share the work: items are handled whoever pushes them and whichever
//! worker runs the runners, in the order of each thread, and nothing that happens while a runner
//! works is missed.

use super::*;

/// Two threads push two items each, and run what they woke only after that.
#[test]
fn every_item_is_handled_once_all_who_were_woken_have_run() {
    for (first, most) in [(1, 1), (2, 2), (1, 2)] {
        explore(3, move || {
            let lane = Lane::new(first, most);
            let pushers = [1, 2].map(|mark| {
                lane.worker(mark, move |worker| {
                    worker.push(10 * mark);
                    worker.push(10 * mark + 1);
                    worker.run();
                })
            });
            join(pushers);
            lane.has_handled([10, 11, 20, 21]);
        });
    }
}

/// Three threads push at once, with one runner and one more that may be spawned.
#[test]
fn every_item_of_three_threads_is_handled() {
    explore(2, || {
        let lane = Lane::new(1, 2);
        join([1, 2, 3].map(|mark| lane.worker(mark, move |worker| worker.task(mark))));
        lane.has_handled([1, 2, 3]);
    });
}

/// What one thread woke is run by another one, as work stealing does.
#[test]
fn runners_that_begin_on_other_threads_leave_nothing() {
    explore(3, || {
        let lane = Lane::new(2, 2);
        let pusher = lane.worker(1, |worker| {
            for item in [10, 11] {
                worker.push(item);
                worker.leave_to_anybody();
            }
        });
        let thief = lane.worker(3, |worker| {
            for _ in 0..3 {
                worker.steal();
            }
        });
        join([pusher, thief]);
        let mut last = Worker::new(&lane, 4);
        while last.steal() {}
        last.run();
        lane.has_handled([10, 11]);
    });
}

/// Two threads push in turn with runners: no runner overtakes another one with items of one thread.
#[test]
fn items_of_one_thread_are_handled_in_their_order() {
    explore(3, || {
        let lane = Lane::new(2, 2);
        let pushers = [1, 2].map(|mark| {
            lane.worker(mark, move |worker| {
                worker.task(10 * mark);
                worker.task(10 * mark + 1);
            })
        });
        join(pushers);
        for items in [[10, 11], [20, 21]] {
            let of_one: Vec<_> = lane.handled().into_iter().filter(|item| items.contains(item)).collect();
            assert_eq!(of_one, items);
        }
    });
}

/// Runners pause after each round: the rest is handled by the same one or another.
#[test]
fn a_runner_that_pauses_goes_on_or_another_one_does() {
    for most in [1, 2] {
        explore(3, move || {
            let lane = Lane::with_rounds(most, most, 1);
            let pushers = [1, 2].map(|mark| {
                lane.worker(mark, move |worker| {
                    worker.task(10 * mark);
                    worker.task(10 * mark + 1);
                })
            });
            join(pushers);
            lane.has_handled([10, 11, 20, 21]);
        });
    }
}

/// Two threads stir a runner that ends its turn: it looks again, or one of them wakes it.
#[test]
fn what_stirs_a_runner_at_work_makes_it_look_again() {
    explore(3, || {
        let lane = Lane::new(1, 1);
        let Turn::Work(core) = lane.turns.begin(0, &lane.wakers[0]) else { panic!("nobody works") };
        lane.turns.calm();
        let others = [1, 2].map(|mark| {
            lane.worker(mark, move |worker| {
                let wake = worker.lane.turns.stir(mark);
                worker.perform(wake);
                !worker.woken.is_empty()
            })
        });
        // It ends once more where it was to look again.
        let again = match lane.turns.end(core) {
            End::Again(core) => Some(lane.turns.end(core)),
            End::Rest | End::Over(_) => None,
        };
        let looks_again = again.is_some();
        if let Some(End::Again(core)) = again {
            assert!(matches!(lane.turns.end(core), End::Rest), "there were two");
        }
        let has_woken = join(others).contains(&true);
        assert!(looks_again || has_woken, "neither did it look again, nor was it woken");
    });
}

/// An item is pushed around `calm`: the runner sees it in the queue, or looks again, or is woken.
#[test]
fn what_happens_after_a_runner_looked_is_not_forgotten() {
    explore(3, || {
        let lane = Lane::new(1, 1);
        let Turn::Work(core) = lane.turns.begin(0, &lane.wakers[0]) else { panic!("nobody works") };
        let pusher = lane.worker(1, |worker| {
            worker.push(10);
            !worker.woken.is_empty()
        });
        lane.turns.calm();
        let seen = lane.turns.with(|queue| !queue.is_empty());
        let looks_again = matches!(lane.turns.end(core), End::Again(_));
        let has_woken = join([pusher])[0];
        assert!(seen || looks_again || has_woken, "nobody noticed");
    });
}
