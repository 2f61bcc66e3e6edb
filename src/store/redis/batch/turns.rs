//! Whose turn it is to work on a lane.
//!
//! A task that was woken by another one may stay behind it on the same worker thread, where no other
//! thread takes it, until that one yields; if it blocks its thread instead, that is long. So a lane
//! has several tasks, its runners, and each can do all its work. Normally the first one does. If it
//! was woken and has not begun when another thread has something new, the next one is woken there.

use std::task::Waker;

use super::sync::{Mutex, MutexGuard};

/// A queue, and the core that one runner at a time works on.
#[derive(Debug)]
pub(super) struct Turns<Q, C> {
    state: Mutex<State<Q, C>>,
    /// Runners at most.
    most: usize,
}

#[derive(Debug)]
struct State<Q, C> {
    queue: Q,
    core: Core<C>,
    /// Something happened that the runner at work may not have seen.
    stirred: bool,
    runners: Vec<Runner>,
}

#[derive(Debug)]
enum Core<C> {
    Resting(C),
    /// A runner works on it.
    Taken,
    Gone,
}

/// The mark of no thread.
const NO_THREAD: usize = 0;

#[derive(Debug)]
struct Runner {
    /// `None` before it runs for the first time.
    waker: Option<Waker>,
    /// The thread that woke it, if it has not begun since.
    woken_by: Option<usize>,
}

impl Runner {
    /// A runner that is about to be spawned.
    fn new(thread: usize) -> Self {
        Self { waker: None, woken_by: Some(thread) }
    }
}

/// A runner to wake once nothing is locked.
#[derive(Debug)]
#[must_use = "a runner that is not woken does not run"]
pub(super) enum Wake {
    Nobody,
    Runner(Waker),
    /// A new runner has to be spawned, of this number.
    Spawn(usize),
}

/// What a runner finds when it runs.
#[derive(Debug)]
pub(super) enum Turn<C> {
    /// It is its turn; the core has to be given back.
    Work(C),
    /// Another runner works, or nothing is to be done.
    Wait,
    /// The lane has ended.
    Over,
}

/// How a turn ends.
#[derive(Debug)]
pub(super) enum End<C> {
    /// The core rests until something happens.
    Rest,
    /// Something happened meanwhile: the turn goes on.
    Again(C),
    /// The lane was closed meanwhile: nobody else has the core.
    Over(C),
}

impl<Q, C> Turns<Q, C> {
    /// With some runners, which are yet to be spawned.
    pub(super) fn new(queue: Q, core: C, first: usize, most: usize) -> Self {
        let runners = (0..first).map(|_| Runner::new(NO_THREAD)).collect();
        let state = State { queue, core: Core::Resting(core), stirred: false, runners };
        Self { state: Mutex::new(state), most }
    }

    /// Changes the queue by an item, and wakes a runner if the change says that there is something to
    /// do. `thread` is any mark of the calling thread.
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

    /// Whether the lane has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state().core, Core::Gone)
    }

    /// Says that there is something to do.
    pub(super) fn stir(&self, thread: usize) -> Wake {
        self.state().stir(thread, self.most)
    }

    /// A further runner. Woken right after another one on the same thread, it makes that one free to
    /// run on other threads.
    pub(super) fn another(&self, thread: usize) -> Wake {
        self.state().wake_next(thread, self.most)
    }

    /// What a runner does that was woken.
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

    /// The queue, for the runner at work.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Q) -> R) -> R {
        change(&mut self.state().queue)
    }

    /// Forgets what happened so far: the runner at work looks at everything after this, at the queue
    /// too.
    pub(super) fn calm(&self) {
        self.state().stirred = false;
    }

    /// Ends a turn, unless something happened meanwhile.
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

    /// Ends a turn though there is more to do: the runner has to wake itself. Returns the core if the
    /// lane was closed meanwhile.
    pub(super) fn pause(&self, runner: usize, core: C) -> Option<C> {
        let mut state = self.state();
        if !matches!(state.core, Core::Taken) {
            return Some(core);
        }
        state.core = Core::Resting(core);
        state.runners[runner].woken_by = Some(NO_THREAD);
        None
    }

    /// Ends the lane. Its runners are over when they run the next time; returns the core unless one is
    /// at work, which finds that out as its turn ends, and the wakers of all.
    pub(super) fn close(&self) -> (Option<C>, Vec<Waker>) {
        let mut state = self.state();
        let core = match std::mem::replace(&mut state.core, Core::Gone) {
            Core::Resting(core) => Some(core),
            Core::Taken | Core::Gone => None,
        };
        (core, state.runners.iter().filter_map(|runner| runner.waker.clone()).collect())
    }

    fn state(&self) -> MutexGuard<'_, State<Q, C>> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<Q, C> State<Q, C> {
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

    /// Wakes the first runner that is not woken already.
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
