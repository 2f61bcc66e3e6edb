//! Models of lanes that end at any point: every item is handled, left in the queue, or returned to
//! who pushed it, and the core is given up once.

use super::*;

/// Closes a lane as `Lane::close` does, and returns what was left in the queue.
fn close(worker: &mut Worker) -> Vec<Item> {
    let (_, wakers) = worker.lane.turns.close();
    assert!(!wakers.is_empty(), "they have to run once more to be over");
    worker.lane.turns.with(std::mem::take)
}

/// Asserts that each accepted item was handled or left exactly once, and that others were neither.
#[track_caller]
fn is_complete(lane: &Lane, left: &[Item], accepted: &[(Item, bool)]) {
    let handled = lane.handled();
    for (item, accepted) in accepted {
        let times = handled.iter().chain(left).filter(|other| *other == item).count();
        assert_eq!(times, usize::from(*accepted), "item {item}: handled {handled:?}, left {left:?}");
    }
}

/// Asserts that nobody works on a lane and nobody will, whatever is called.
#[track_caller]
fn is_over(lane: &Lane) {
    assert!(lane.turns.is_over());
    assert!(lane.turns.close().0.is_none(), "it has no core");
    for (runner, waker) in lane.wakers.iter().enumerate().take(1) {
        assert!(matches!(lane.turns.begin(runner, waker), Turn::Over));
    }
    assert!(lane.turns.push(1, 99, |_, _| ((), true)).is_err());
    assert!(matches!(lane.turns.stir(1), Wake::Nobody));
    assert!(matches!(lane.turns.another(1), Wake::Nobody));
}

/// Two threads push and run runners while a third one closes the lane, also with a runner that
/// pauses after one round.
#[test]
fn every_item_is_handled_or_left_or_given_back_wherever_the_lane_stands_when_it_ends() {
    for rounds in [1, 8] {
        explore(2, move || {
            let lane = Lane::with_rounds(2, 2, rounds);
            let pushers = [1, 2].map(|mark| {
                lane.worker(mark, move |worker| {
                    let item = 10 * mark;
                    let accepted = worker.push(item);
                    worker.run();
                    (item, accepted)
                })
            });
            let closer = lane.worker(3, close);
            let accepted = join(pushers);
            let left = join([closer]).concat();
            is_complete(&lane, &left, &accepted);
            is_over(&lane);
        });
    }
}

/// A thread that has seen the lane's end has its item returned.
#[test]
fn who_pushes_after_the_end_has_the_item_back() {
    explore(3, || {
        let lane = Lane::new(1, 2);
        let ends = lane.worker(1, close);
        let pushes = lane.worker(2, |worker| {
            let was_over = worker.lane.turns.is_over();
            let accepted = worker.push(20);
            assert!(!(was_over && accepted));
            (20, accepted)
        });
        let accepted = join([pushes]);
        let left = join([ends]).concat();
        is_complete(&lane, &left, &accepted);
        is_over(&lane);
    });
}

/// One thread works and pauses while two others close the lane: one of the three receives the core.
#[test]
fn the_core_is_given_up_once_whether_or_not_a_runner_works_on_it() {
    explore(3, || {
        let lane = Lane::new(1, 1);
        let works = lane.worker(1, |worker| match worker.lane.turns.begin(0, &worker.lane.wakers[0]) {
            Turn::Work(core) => worker.lane.turns.pause(0, core).is_some(),
            Turn::Wait | Turn::Over => false,
        });
        let closers = [2, 3].map(|mark| lane.worker(mark, |worker| worker.lane.turns.close().0.is_some()));
        let cores = join([works]).into_iter().chain(join(closers)).filter(|has_core| *has_core).count();
        assert_eq!(cores, 1, "what it had is completed once");
        is_over(&lane);
    });
}
