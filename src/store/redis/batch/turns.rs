//! Which runner works on a lane.
//!
//! A task that was woken by another one may stay behind it on the same worker thread, where no
//! other thread takes it, until that one yields; if that one blocks its thread, it takes long. So a
//! lane has several tasks, its runners, and each can do all its work. Normally the first one does.
//! If it was woken and has not begun when another thread has something new, the next one is woken
//! there.
//!
//! The core of a lane is in one of three states:
//!
//! | state | meaning | `push` or `stir` | `begin` | `close` |
//! | --- | --- | --- | --- | --- |
//! | `Resting` | no runner works | wakes a runner, or relies on one woken by this thread | takes it | returns it |
//! | `Taken` | one runner works | marks it as stirred | marks it, and waits | the runner finds out at the end |
//! | `Gone` | the lane has ended | refused, or nothing | over | nothing |
//!
//! Invariants, which a model checker tries in all orders (`models/`):
//!
//! - at most one runner has the core;
//! - nothing is forgotten: whatever is pushed before a turn ends is seen in that turn, or a runner
//!   is woken for it;
//! - the core is returned once, to the caller that ends the lane or to the runner at work, and to no
//!   other.
//!
//! There is one mutex, held for a few steps. It is never held while a waker is called, a task is
//! spawned or the core is worked on. The module knows neither Redis nor jobs: queue and core are
//! type parameters, so that the model can have simple ones.

use std::task::Waker;

use super::sync::{Mutex, MutexGuard};

/// A queue, and the core that one runner at a time works on.
#[derive(Debug)]
pub(super) struct Turns<Q, C> {
    /// All of it; locked for short steps only.
    state: Mutex<State<Q, C>>,
    /// The limit of runners, at least 1.
    most: usize,
}

/// What the mutex protects.
#[derive(Debug)]
struct State<Q, C> {
    /// What pushing threads change and the runner at work reads.
    queue: Q,
    /// The core, or who has it.
    core: Core<C>,
    /// Whether something happened that the runner at work may not have seen. Only meaningful while
    /// the core is taken.
    stirred: bool,
    /// The runners by their number.
    runners: Vec<Runner>,
}

/// The core, or where it is.
#[derive(Debug)]
enum Core<C> {
    /// No runner works. Whatever happens has to wake one.
    Resting(C),
    /// A runner works on it, and looks again before it rests.
    Taken,
    /// The lane has ended: no runner will work again.
    Gone,
}

/// The mark of no thread: addresses are not 0.
const NO_THREAD: usize = 0;

/// What is known of a runner: a task that can take turns.
#[derive(Debug)]
struct Runner {
    /// Its waker, as of its last run; `None` before it runs for the first time.
    waker: Option<Waker>,
    /// The mark of the thread that woke it, if it has not begun since. While this is set, that
    /// thread need not wake another one: the runner runs there after the current task at the
    /// latest.
    woken_by: Option<usize>,
}

impl Runner {
    /// A runner that is about to be spawned by `thread`, which wakes it.
    fn new(thread: usize) -> Self {
        Self { waker: None, woken_by: Some(thread) }
    }
}

/// What to do once nothing is locked: wake a runner, spawn one, or nothing.
#[derive(Debug)]
#[must_use = "a runner that is not woken does not run"]
pub(super) enum Wake {
    /// Nothing has to be woken.
    Nobody,
    /// An existing runner has to be woken.
    Runner(Waker),
    /// A new runner of this number has to be spawned.
    Spawn(usize),
}

/// What a runner that was woken has to do.
#[derive(Debug)]
pub(super) enum Turn<C> {
    /// It is its turn. The core has to be returned by `end` or `pause`, or the lane closed.
    Work(C),
    /// Another runner works, and will look again. Nothing is to be done until this one is woken.
    Wait,
    /// The lane has ended, and so does the runner.
    Over,
}

/// How a turn ends.
#[derive(Debug)]
pub(super) enum End<C> {
    /// The core rests until something happens. The runner waits for its waker.
    Rest,
    /// Something happened meanwhile: the turn goes on.
    Again(C),
    /// The lane was closed meanwhile: the runner fails what the core still has, as no other code can.
    Over(C),
}

impl<Q, C> Turns<Q, C> {
    /// Turns with `first` runners, which the caller spawns right after, and at most `most` in all.
    pub(super) fn new(queue: Q, core: C, first: usize, most: usize) -> Self {
        let runners = (0..first).map(|_| Runner::new(NO_THREAD)).collect();
        let state = State { queue, core: Core::Resting(core), stirred: false, runners };
        Self { state: Mutex::new(state), most }
    }

    /// Changes the queue by an item, and returns the result of the change with the runner to wake if the
    /// change reports that there is something to do. `thread` is a mark of the calling thread.
    ///
    /// `change` runs under the lock: it must be short and must not call back.
    ///
    /// # Errors
    ///
    /// The item, if the lane has ended.
    pub(super) fn push<T, R>(
        &self,
        thread: usize,
        item: T,
        change: impl FnOnce(&mut Q, T) -> (R, bool),
    ) -> Result<(R, Wake), T> {
        let mut state = self.state();
        if matches!(state.core, Core::Gone) {
            return Err(item);
        }
        let (changed, is_due) = change(&mut state.queue, item);
        Ok((changed, if is_due { state.stir(thread, self.most) } else { Wake::Nobody }))
    }

    /// Returns whether the lane has ended. It may end right after.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state().core, Core::Gone)
    }

    /// Reports that there is something to do. `thread` is a mark of the calling thread.
    pub(super) fn stir(&self, thread: usize) -> Wake {
        self.state().stir(thread, self.most)
    }

    /// Wakes or spawns a further runner, if none works. Woken right after another one on the same
    /// thread, it makes that one free to run on other threads: tokio keeps only the task that was
    /// woken last for the current worker.
    pub(super) fn another(&self, thread: usize) -> Wake {
        self.state().wake_next(thread, self.most)
    }

    /// Begins the turn of a runner that was polled, with the waker of this poll. The runner takes
    /// the core, or leaves a mark for the one at work.
    pub(super) fn begin(&self, runner: usize, waker: &Waker) -> Turn<C> {
        let mut state = self.state();
        let this = &mut state.runners[runner];
        this.woken_by = None;
        if !this.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            this.waker = Some(waker.clone());
        }
        match std::mem::replace(&mut state.core, Core::Taken) {
            Core::Resting(core) => {
                state.stirred = false;
                Turn::Work(core)
            }
            Core::Taken => {
                state.stirred = true;
                Turn::Wait
            }
            Core::Gone => {
                state.core = Core::Gone;
                Turn::Over
            }
        }
    }

    /// Gives access to the queue. `change` runs under the lock: it must be short and must not call
    /// back.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Q) -> R) -> R {
        change(&mut self.state().queue)
    }

    /// Forgets what happened so far. The runner at work looks at everything after this, the queue
    /// included, so nothing is lost; without it each turn would need one more round.
    pub(super) fn calm(&self) {
        self.state().stirred = false;
    }

    /// Ends a turn, unless something happened since `calm` or the lane was closed.
    pub(super) fn end(&self, core: C) -> End<C> {
        let mut state = self.state();
        if !matches!(state.core, Core::Taken) {
            return End::Over(core);
        }
        if std::mem::take(&mut state.stirred) {
            return End::Again(core);
        }
        state.core = Core::Resting(core);
        End::Rest
    }

    /// Ends a turn though there is more to do: the runner has to wake itself right after, which
    /// lets other tasks of its thread run first. Meanwhile other threads may wake another runner.
    /// Returns the core if the lane was closed during the turn.
    pub(super) fn pause(&self, runner: usize, core: C) -> Option<C> {
        let mut state = self.state();
        if !matches!(state.core, Core::Taken) {
            return Some(core);
        }
        state.core = Core::Resting(core);
        state.runners[runner].woken_by = Some(NO_THREAD);
        None
    }

    /// Ends the lane. Returns the core if it was resting, and the wakers of all runners that have
    /// run, which have to be woken to find that the lane is over. A runner at work receives the
    /// core back as its turn ends. Later calls return no core.
    pub(super) fn close(&self) -> (Option<C>, Vec<Waker>) {
        let mut state = self.state();
        let core = match std::mem::replace(&mut state.core, Core::Gone) {
            Core::Resting(core) => Some(core),
            Core::Taken | Core::Gone => None,
        };
        (core, state.runners.iter().filter_map(|runner| runner.waker.clone()).collect())
    }

    /// Locks the state. The lock may be poisoned only by a panic within a change, after which the
    /// state is as good as before.
    fn state(&self) -> MutexGuard<'_, State<Q, C>> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<Q, C> State<Q, C> {
    /// Has the runner at work look again, or chooses one to wake.
    fn stir(&mut self, thread: usize, most: usize) -> Wake {
        match self.core {
            Core::Gone => Wake::Nobody,
            // It looks again before it ends its turn.
            Core::Taken => {
                self.stirred = true;
                Wake::Nobody
            }
            // One that this thread woke runs as soon as this thread comes to it, which goes on yet.
            Core::Resting(_) if self.runners.iter().any(|runner| runner.woken_by == Some(thread)) => Wake::Nobody,
            Core::Resting(_) => self.wake_next(thread, most),
        }
    }

    /// Chooses the first runner that is not woken already, or a new one if all are and there is
    /// room. If all are woken and no more are allowed, one of them will run.
    fn wake_next(&mut self, thread: usize, most: usize) -> Wake {
        if !matches!(self.core, Core::Resting(_)) {
            return Wake::Nobody;
        }
        if let Some(runner) = self.runners.iter_mut().find(|runner| runner.woken_by.is_none()) {
            runner.woken_by = Some(thread);
            return runner.waker.clone().map_or(Wake::Nobody, Wake::Runner);
        }
        if self.runners.len() == most {
            return Wake::Nobody;
        }
        self.runners.push(Runner::new(thread));
        Wake::Spawn(self.runners.len() - 1)
    }
}
