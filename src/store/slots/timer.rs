//! The timer of slots: one task for each runtime in which slots are taken, so mostly one for a process.
//!
//! It calls all keepers of its runtime at each heartbeat, and ends when none of them needs it. It is one for each runtime
//! because another runtime may stand still, have ended, or have another clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle as Runtime, Id};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::core::algorithm::HEARTBEAT;

/// What a timer calls.
pub(super) trait Beat: Send + Sync {
    /// Is called at each heartbeat of a runtime. Returns whether the timer of that runtime is still needed; if not, it has
    /// to be [wound](wind) again.
    fn beat(self: Arc<Self>, runtime: Id) -> bool;

    /// The timer of a runtime has ended with it.
    fn lost(&self, runtime: Id);
}

/// What the timer of a runtime calls.
type Called = Vec<Arc<dyn Beat>>;

/// The timers that run.
static TIMERS: Mutex<Vec<(Id, Called)>> = Mutex::new(Vec::new());

/// Has `called` be called at each heartbeat of a runtime, in which it is not called yet.
pub(super) fn wind(runtime: &Runtime, called: Arc<dyn Beat>) {
    let id = runtime.id();
    {
        let mut timers = timers();
        if let Some((_, all)) = timers.iter_mut().find(|(of, _)| *of == id) {
            return all.push(called);
        }
        timers.push((id, vec![called]));
    }
    // A runtime that has ended drops it here, which ends the timer.
    runtime.spawn(Running(id).run());
    // A worker runs the task that it spawned last by itself, when the current one waits: which never happens in a handler
    // that blocks its thread. So that others can run the timer, another task is that last one.
    runtime.spawn(async {});
}

/// The task of a timer. When it is dropped, the timer has ended.
struct Running(Id);

impl Running {
    async fn run(self) {
        let mut interval = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for called in self.called() {
                if !Arc::clone(&called).beat(self.0) {
                    self.leave(&called);
                }
            }
            if self.is_over() {
                return;
            }
        }
    }

    /// Returns all that is called at this heartbeat.
    fn called(&self) -> Called {
        timers().iter().find(|(of, _)| *of == self.0).map_or_else(Vec::new, |(_, all)| all.clone())
    }

    /// Removes what needs no timer, once: it may have been added again since.
    fn leave(&self, called: &Arc<dyn Beat>) {
        let removed = {
            let mut timers = timers();
            let all = timers.iter_mut().find(|(of, _)| *of == self.0);
            all.and_then(|(_, all)| Some(all.swap_remove(all.iter().position(|other| Arc::ptr_eq(other, called))?)))
        };
        // A store may be dropped here, so the lock is not held.
        drop(removed);
    }

    /// Ends the timer if there is nothing to call: whoever winds it later begins another one.
    fn is_over(&self) -> bool {
        let mut timers = timers();
        let Some(index) = timers.iter().position(|(of, _)| *of == self.0) else { return true };
        let is_over = timers[index].1.is_empty();
        if is_over {
            timers.swap_remove(index);
        }
        is_over
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let left = {
            let mut timers = timers();
            let index = timers.iter().position(|(of, _)| *of == self.0);
            index.map_or_else(Vec::new, |index| timers.swap_remove(index).1)
        };
        for called in left {
            called.lost(self.0);
        }
    }
}

/// Locks the timers. Nothing panics while they are locked.
fn timers() -> MutexGuard<'static, Vec<(Id, Called)>> {
    TIMERS.lock().unwrap_or_else(PoisonError::into_inner)
}
