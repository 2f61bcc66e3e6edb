//! A model of turns, tried by loom in every order in which threads can take them.
//!
//! `turns.rs` is compiled once more here, with loom's locks. Queue and core are as simple as can
//! be: a list of numbers, and a counter that only one worker can have. A [`Worker`] is what a
//! worker thread of tokio is: it runs tasks one after the other, and the runners that it woke once
//! its task is over. One that is stuck never runs them.
//!
//! The models claim what the page of `turns.rs` calls invariants: every item is handled once
//! (`sharing`), also if threads block for ever (`stuck`), and whatever the lane's end interrupts
//! (`closing`).

mod closing;
mod sharing;
mod stuck;
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "it is compiled once more with other locks, and not all of it is used"
)]
#[path = "../turns.rs"]
mod turns;

/// What [`turns`] locks with here.
mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake as Waked, Waker};

use loom::model::Builder;
use loom::thread;

use turns::{End, Turn, Turns, Wake};

/// What is pushed.
type Item = usize;

/// A lane, and what was done on it.
struct Lane {
    /// The core is a number that nobody else has: how often somebody worked.
    turns: Turns<Vec<Item>, usize>,
    /// The wakers of all runners, which `will_wake` distinguishes.
    wakers: Vec<Waker>,
    /// Which runners were woken and have not begun since: waking them again does nothing.
    is_woken: Vec<AtomicBool>,
    /// How often a runner looks for more to do before it pauses.
    rounds: usize,
    /// In the order in which they were taken. No lock of the model: who looks does so in one step.
    handled: Mutex<Vec<Item>>,
    /// Runners that any worker may run, as if tokio had moved them to its shared queue.
    anybodys: sync::Mutex<Vec<usize>>,
}

/// A waker that does nothing: workers run what they woke by themselves.
struct Number;

impl Waked for Number {
    fn wake(self: Arc<Self>) {}
}

impl Lane {
    /// A lane with `first` runners that wait already, and at most `most`.
    fn new(first: usize, most: usize) -> Arc<Self> {
        Self::with_rounds(first, most, 8)
    }

    /// As `new`, with the number of rounds after which a runner pauses.
    fn with_rounds(first: usize, most: usize, rounds: usize) -> Arc<Self> {
        let wakers = (0..most).map(|_| Waker::from(Arc::new(Number))).collect();
        let is_woken = (0..most).map(|_| AtomicBool::new(false)).collect();
        let (turns, anybodys) = (Turns::new(Vec::new(), 0, first, most), sync::Mutex::new(Vec::new()));
        let lane = Arc::new(Self { turns, wakers, is_woken, rounds, handled: Mutex::default(), anybodys });
        (0..first).for_each(|runner| Worker::new(&lane, 9).poll(runner));
        lane
    }

    /// Returns the items handled so far, in their order.
    fn handled(&self) -> Vec<Item> {
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asserts that each of these items was handled exactly once.
    #[track_caller]
    fn has_handled(&self, items: impl IntoIterator<Item = Item>) {
        let handled = self.handled();
        for item in items {
            let times = handled.iter().filter(|other| **other == item).count();
            assert_eq!(times, 1, "item {item} of {handled:?}, {:?}", self.turns);
        }
    }

    /// Runs something on a thread of its own, as the worker of a mark.
    fn worker<R: 'static>(
        self: &Arc<Self>,
        mark: usize,
        work: impl FnOnce(&mut Worker) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let lane = Arc::clone(self);
        thread::spawn(move || work(&mut Worker::new(&lane, mark)))
    }
}

/// A thread that runs tasks.
struct Worker {
    lane: Arc<Lane>,
    mark: usize,
    /// Runners that it woke, and runs once its task is over.
    woken: Vec<usize>,
}

impl Worker {
    /// A worker of a lane; `mark` is what `thread()` would return on it.
    fn new(lane: &Arc<Lane>, mark: usize) -> Self {
        Self { lane: Arc::clone(lane), mark, woken: Vec::new() }
    }

    /// Pushes an item; returns whether the lane takes it.
    fn push(&mut self, item: Item) -> bool {
        let pushed = self.lane.turns.push(self.mark, item, |queue, item| (queue.push(item), true));
        let (accepted, wake) = match pushed {
            Ok(((), wake)) => (true, wake),
            Err(back) => {
                assert_eq!(back, item);
                (false, Wake::Nobody)
            }
        };
        self.perform(wake);
        accepted
    }

    /// Carries out the result of the turns: the runner is noted, to run once the task is over.
    fn perform(&mut self, wake: Wake) {
        let runner = match wake {
            Wake::Nobody => return,
            Wake::Runner(waker) => self.lane.wakers.iter().position(|other| other.will_wake(&waker)),
            Wake::Spawn(runner) => Some(runner),
        };
        let runner = runner.expect("it is one of the lane's");
        let is_woken = self.lane.is_woken[runner].swap(true, Ordering::Relaxed);
        assert!(!is_woken, "runner {runner} was woken before, so nobody is now");
        self.woken.push(runner);
    }

    /// Ends its task, and runs what it woke meanwhile.
    fn run(&mut self) {
        while let Some(runner) = self.woken.pop() {
            self.poll(runner);
        }
    }

    /// Pushes an item in a task of its own.
    fn task(&mut self, item: Item) {
        assert!(self.push(item));
        self.run();
    }

    /// Lets any worker run what it woke.
    fn leave_to_anybody(&mut self) {
        let mut anybodys = self.lane.anybodys.lock().expect("nobody panics");
        anybodys.append(&mut self.woken);
    }

    /// Runs a runner that any worker may run, if there is one.
    fn steal(&mut self) -> bool {
        let runner = self.lane.anybodys.lock().expect("nobody panics").pop();
        if let Some(runner) = runner {
            self.poll(runner);
        }
        runner.is_some()
    }

    /// Runs a runner for one turn, as `Runner::poll` and `Core::work` do.
    fn poll(&mut self, runner: usize) {
        let lane = Arc::clone(&self.lane);
        lane.is_woken[runner].store(false, Ordering::Relaxed);
        let mut core = match lane.turns.begin(runner, &lane.wakers[runner]) {
            Turn::Work(core) => core,
            Turn::Wait | Turn::Over => return,
        };
        for _ in 0..lane.rounds {
            core += 1;
            let taken = lane.turns.with(std::mem::take);
            lane.handled.lock().expect("nobody panics").extend(taken);
            lane.turns.calm();
            if lane.turns.with(|queue| !queue.is_empty()) {
                continue;
            }
            match lane.turns.end(core) {
                End::Rest | End::Over(_) => return,
                End::Again(again) => core = again,
            }
        }
        lane.is_woken[runner].store(true, Ordering::Relaxed);
        if lane.turns.pause(runner, core).is_none() {
            self.woken.insert(0, runner);
        }
    }
}

/// Tries a model in all orders with at most `switches` switches away from threads that could go on.
fn explore(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// Waits for threads, and returns what each returned.
fn join<R>(threads: impl IntoIterator<Item = thread::JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
}
