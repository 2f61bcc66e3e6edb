//! When the slots are looked up.
//!
//! Requests to begin a look come in, often many at once as each failed decision makes one; permission for few goes out.
//! A failover must be noticed fast, and a Cluster in trouble must not be flooded with `CLUSTER SLOTS`:
//!
//! - one look at a time, unless that takes longer than 500 ms: the thread that it runs on may be blocked;
//! - none for 50 ms after one that found the slots or was dropped, and for 500 ms after one that found nothing.
//!
//! Looks are numbered as they begin, so that a late result of an early one does not replace that of a later one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The least time between a look that found the slots and the next one.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The least time between a look that found nothing and the next one.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// How long a look keeps another one from beginning.
const OVERDUE: Duration = Duration::from_millis(500);

/// The looks at the slots of one Cluster.
pub(super) struct Looks {
    /// Held for a few instructions, never while anything is awaited.
    state: Mutex<State>,
    /// Counts the looks that have ended, for those who wait for one.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// No look begins before this.
    next: Option<Instant>,
    /// How many have begun: the number of the last one.
    began: u64,
    /// The number of the look that began last of those that found the slots.
    latest: u64,
    under_way: usize,
}

/// A look that is under way. It ends when it is dropped, as it is with its runtime.
#[derive(Debug)]
pub(super) struct Look {
    /// Its number, for [`Looks::is_news`].
    pub(super) number: u64,
    /// How long after it none begins.
    pause: Duration,
    looks: Arc<Looks>,
}

impl Looks {
    /// Returns the looks of a Cluster: none so far.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), ended: watch::Sender::new(0) })
    }

    /// Begins a look, unless the rules at the top of this module forbid it.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Look> {
        let (mut state, now) = (self.state(), Instant::now());
        if state.next.is_some_and(|next| next > now) {
            return None;
        }
        state.next = Some(now + OVERDUE);
        state.under_way += 1;
        Some(Look { number: state.number(), pause: PAUSE, looks: Arc::clone(self) })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.state().under_way > 0
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
        self.pause = if has_found { PAUSE } else { LONG_PAUSE };
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let mut state = self.looks.state();
        state.next = Some(Instant::now() + self.pause);
        state.under_way -= 1;
        drop(state);
        self.looks.ended.send_modify(|count| *count += 1);
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").field("began", &self.state().began).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_keeps_others_from_beginning_until_it_is_overdue_and_for_a_while_after_its_end() {
        let looks = Looks::new();
        let _held_up = looks.begin().expect("none is under way");
        assert!(looks.begin().is_none(), "one is under way");
        advance(OVERDUE).await;
        for (has_found, pause) in [(true, PAUSE), (false, LONG_PAUSE)] {
            looks.begin().expect("none is under way").end(has_found);
            advance(pause / 2).await;
            assert!(looks.begin().is_none());
            advance(pause / 2).await;
        }
        drop(looks.begin().expect("none is under way"));
        advance(PAUSE).await;
        looks.begin().expect("the one before was dropped");
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
