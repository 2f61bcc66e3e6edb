//! When the slots are looked up, and by which runtime.
//!
//! Requests to begin a look come in, often many at once as each failed decision makes one;
//! permission for few goes out. A failover must be noticed fast, and a Cluster in trouble must not
//! be flooded with `CLUSTER SLOTS`. Each runtime looks for itself, as one that has stopped must
//! keep no other one from looking:
//!
//! - one look at a time in a runtime, unless that takes longer than 500 ms, and 4 at most even
//!   then;
//! - none for 50 ms after one that found the slots, in any runtime;
//! - none in the same runtime for 500 ms after one that found nothing, or 50 ms after one that was
//!   dropped;
//! - none while 8 in all runtimes are under way for less than 500 ms, or are in that pause.
//!
//! Looks are numbered as they begin, so that a late result of an early one does not replace that of
//! a later one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Id;
use tokio::sync::watch;
use tokio::time::Instant;

/// The least time between a look that found the slots and the next one.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The least time between a look that found nothing and the next one of the same runtime. Others
/// may have more success.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// How long a look keeps its runtime from another one: the thread that it runs on may be blocked.
const OVERDUE: Duration = Duration::from_millis(500);

/// The most looks of one runtime at once, overdue ones included.
const MOST_OF_ONE: usize = 4;

/// The most looks in all runtimes that are under way and not overdue, or found nothing a moment
/// ago.
const MOST_RUNTIMES: usize = 8;

/// The looks of all runtimes at the slots of one Cluster. Each runtime has its own: one that is not
/// driven keeps no other one from looking.
pub(super) struct Looks {
    /// Held for a few instructions, never while anything is awaited.
    state: Mutex<State>,
    /// Counts the looks that have ended, for those who wait for one.
    ended: watch::Sender<u64>,
}

/// The state of all looks.
#[derive(Default)]
struct State {
    /// Those under way, and those that ended a moment ago.
    looks: Vec<Entry>,
    /// No look begins before this: the slots have just been found.
    fresh_until: Option<Instant>,
    /// How many have begun: the number of the last one.
    began: u64,
    /// The number of the look that began last of those that found the slots.
    latest: u64,
}

/// One look.
struct Entry {
    /// Its number, from 1.
    number: u64,
    /// The runtime that it runs in.
    runtime: Id,
    /// Its runtime begins no other one before this.
    until: Instant,
    /// Whether it has ended; an entry is then kept only until its pause is over.
    has_ended: bool,
}

/// A look that is under way. It ends when it is dropped, as it is with its runtime.
#[derive(Debug)]
pub(super) struct Look {
    /// Its number, for [`Looks::is_news`].
    pub(super) number: u64,
    /// How long its runtime pauses when it ends.
    pause: Duration,
    /// Whether it found the slots.
    has_found: bool,
    /// Where its end is noted.
    looks: Arc<Looks>,
}

impl Looks {
    /// Returns the looks of a Cluster: none so far.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), ended: watch::Sender::new(0) })
    }

    /// Begins a look in a runtime, unless the rules at the top of this module forbid it.
    pub(super) fn begin(self: &Arc<Self>, runtime: Id) -> Option<Look> {
        let (mut state, now) = (self.state(), Instant::now());
        if state.fresh_until.is_some_and(|until| until > now) {
            return None;
        }
        state.looks.retain(|look| !look.has_ended || look.until > now);
        let own = || state.looks.iter().filter(|look| look.runtime == runtime);
        let in_time = state.looks.iter().filter(|look| look.until > now).count();
        if own().any(|look| look.until > now) || own().count() >= MOST_OF_ONE || in_time >= MOST_RUNTIMES {
            return None;
        }
        let number = state.number();
        state.looks.push(Entry { number, runtime, until: now + OVERDUE, has_ended: false });
        Some(Look { number, pause: PAUSE, has_found: false, looks: Arc::clone(self) })
    }

    /// Returns whether a look of this runtime is under way, or may begin: none of its own has ended
    /// and is still in its pause.
    pub(super) fn may_find(&self, runtime: Id) -> bool {
        let (state, now) = (self.state(), Instant::now());
        !state.looks.iter().any(|look| look.runtime == runtime && look.has_ended && look.until > now)
    }

    /// Returns the number of a look to which the rules do not apply: the one that connecting waits
    /// for.
    pub(super) fn number(&self) -> u64 {
        self.state().number()
    }

    /// Returns whether what a look found is to be used, and notes it if so: no later look has found
    /// the slots before.
    pub(super) fn is_news(&self, number: u64) -> bool {
        let mut state = self.state();
        let is_news = number > state.latest;
        if is_news {
            state.latest = number;
        }
        is_news
    }

    /// Returns a receiver that is notified when looks end from now on.
    pub(super) fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Notes that a look has ended, and wakes all that wait for one.
    fn end(&self, number: u64, pause: Duration, has_found: bool) {
        let (mut state, now) = (self.state(), Instant::now());
        if has_found {
            state.fresh_until = Some(now + pause);
        }
        if let Some(look) = state.looks.iter_mut().find(|look| look.number == number) {
            (look.until, look.has_ended) = (now + pause, true);
        }
        drop(state);
        self.ended.send_modify(|count| *count += 1);
    }

    /// Locks the state. A panic while it was held has left nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the number of the next look.
    fn number(&mut self) -> u64 {
        self.began += 1;
        self.began
    }
}

impl Look {
    /// Ends the look. To be called when what it found is in the map, as it wakes those who wait for
    /// that.
    pub(super) fn end(mut self, has_found: bool) {
        (self.pause, self.has_found) = (if has_found { PAUSE } else { LONG_PAUSE }, has_found);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.looks.end(self.number, self.pause, self.has_found);
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").field("began", &self.state().began).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle};
    use tokio::time::advance;

    use super::*;

    /// The ID of another runtime, which has ended.
    fn elsewhere() -> Id {
        // To drop it would block, which is not allowed here.
        let runtime = Builder::new_current_thread().build().expect("a runtime can be built");
        let id = runtime.handle().id();
        runtime.shutdown_background();
        id
    }

    #[track_caller]
    fn began(look: Option<Look>) -> Look {
        look.expect("nothing keeps it from looking")
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_held_up_keeps_its_runtime_from_another_one_for_a_moment_and_no_other_runtime() {
        let (looks, here) = (Looks::new(), Handle::current().id());
        let _held_up = began(looks.begin(here));
        assert!(looks.begin(here).is_none(), "one is under way");
        let _other = began(looks.begin(elsewhere()));
        advance(OVERDUE).await;
        let _next = began(looks.begin(here));
        assert!(looks.begin(here).is_none(), "another one is under way");
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_do_not_end_are_bounded() {
        let (looks, here) = (Looks::new(), Handle::current().id());
        let mut held_up = Vec::new();
        for _ in 0..2 * MOST_OF_ONE {
            held_up.extend(looks.begin(here));
            advance(OVERDUE).await;
        }
        assert_eq!(held_up.len(), MOST_OF_ONE);
        for _ in 0..2 * MOST_RUNTIMES {
            held_up.extend(looks.begin(elsewhere()));
        }
        assert_eq!(held_up.len(), MOST_OF_ONE + MOST_RUNTIMES);
        advance(OVERDUE).await;
        began(looks.begin(elsewhere()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_not_looked_for_again_at_once_and_what_was_not_found_is_by_others() {
        let (looks, here, there) = (Looks::new(), Handle::current().id(), elsewhere());
        began(looks.begin(here)).end(true);
        assert!(looks.begin(here).is_none() && looks.begin(there).is_none());
        advance(PAUSE).await;
        began(looks.begin(here)).end(false);
        drop(began(looks.begin(there)));
        assert!(looks.begin(there).is_none(), "it began just now");
        advance(PAUSE).await;
        assert!(looks.begin(here).is_none(), "nobody knew");
        began(looks.begin(there)).end(false);
        advance(LONG_PAUSE).await;
        began(looks.begin(here));
    }

    #[tokio::test]
    async fn what_a_look_found_that_was_held_up_does_not_undo_what_a_later_one_found() {
        let looks = Looks::new();
        let (first, second, third) = (looks.number(), looks.number(), looks.number());
        assert!(looks.is_news(second));
        assert!(!looks.is_news(first), "it began before");
        assert!(looks.is_news(third));
    }
}
