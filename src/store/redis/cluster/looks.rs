use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) const PAUSE: Duration = Duration::from_millis(50);

const LONG_PAUSE: Duration = Duration::from_millis(500);

/// Time after which a refresh no longer prevents another.
const OVERDUE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct RefreshLimiter {
    /// The lock is never held across an await.
    state: Mutex<Schedule>,
    pub(super) ended: Notify,
}

#[derive(Default)]
struct Schedule {
    next: Option<Instant>,
    began: u64,
    /// The highest number of a refresh that found the slots.
    latest: u64,
    under_way: usize,
    /// Whether the last refresh to end found nothing.
    is_lost: bool,
}

/// A refresh, which ends when dropped, for example with its runtime.
pub(super) struct RefreshPermit {
    number: u64,
    pause: Duration,
    looks: Arc<RefreshLimiter>,
}

impl RefreshLimiter {
    pub(super) fn begin(self: &Arc<Self>) -> Option<RefreshPermit> {
        let (mut state, now) = (self.state(), Instant::now());
        if state.next.is_some_and(|next| next > now) {
            return None;
        }
        state.next = Some(now + OVERDUE);
        state.under_way += 1;
        state.began += 1;
        Some(RefreshPermit { number: state.began, pause: PAUSE, looks: Arc::clone(self) })
    }

    /// Returns `true` if the last refresh found nothing, and none is running.
    pub(super) fn is_lost(&self) -> bool {
        let state = self.state();
        state.is_lost && state.under_way == 0
    }

    /// Ignores poisoning: a panic leaves no partial change.
    fn state(&self) -> MutexGuard<'_, Schedule> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefreshPermit {
    /// Marks the slots as found. Returns `false` if a later refresh found them first.
    pub(super) fn is_news(&self) -> bool {
        let mut state = self.looks.state();
        let is_news = self.number > state.latest;
        state.latest = state.latest.max(self.number);
        is_news
    }

    /// Call it after the map was replaced, because it wakes the waiters. Returns `true` if the last one found nothing.
    pub(super) fn end(mut self, has_found: bool) -> bool {
        self.pause = if has_found { PAUSE } else { LONG_PAUSE };
        mem::replace(&mut self.looks.state().is_lost, !has_found)
    }
}

impl Drop for RefreshPermit {
    fn drop(&mut self) {
        let mut state = self.looks.state();
        state.next = Some(Instant::now() + self.pause);
        state.under_way -= 1;
        drop(state);
        self.looks.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_keeps_others_from_beginning_until_it_is_overdue_and_for_a_while_after_its_end() {
        let looks = Arc::<RefreshLimiter>::default();
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

    #[tokio::test(start_paused = true)]
    async fn what_a_look_found_that_was_held_up_does_not_undo_what_a_later_one_found() {
        let looks = Arc::<RefreshLimiter>::default();
        let mut began = Vec::new();
        for _ in 0..3 {
            began.push(looks.begin().expect("the one before is overdue"));
            advance(OVERDUE).await;
        }
        assert!(began[1].is_news());
        assert!(!began[0].is_news(), "it began before");
        assert!(began[2].is_news());
    }
}
