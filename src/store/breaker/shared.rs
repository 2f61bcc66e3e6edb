//! A breaker that several threads ask and tell.

use std::time::Duration;

use super::recent::WINDOW_MS;
use super::snapshot::{BreakerState, PROBES_BITS, Snapshot};
use super::sync::{AtomicU64, Ordering};

/// A probe that takes longer has failed, whatever the budget: so the tasks that probe are few.
pub(crate) const LONGEST_PROBE: Duration = Duration::from_secs(15);

/// Leave to ask the store once: it goes with what became of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    round: u64,
    probe: bool,
}

impl Permit {
    /// Whether the answer decides if the store is asked again.
    pub(crate) fn is_probe(self) -> bool {
        self.probe
    }
}

/// A circuit breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// A packed [`Snapshot`].
    pub(super) state: AtomicU64,
    /// When the first of the last failures in a row was told.
    failing_since: AtomicU64,
    /// When it closed last, and how many probes that took: in the low bits.
    closed: AtomicU64,
}

impl Breaker {
    /// A closed breaker.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU64::new(0), failing_since: AtomicU64::new(0), closed: AtomicU64::new(0) }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.load().phase
    }

    /// Leave to ask the store, or none. The time matters only while it is not closed.
    pub(crate) fn ask(&self, now: impl FnOnce() -> u64) -> Option<Permit> {
        let word = self.state.load(Ordering::Acquire);
        let found = Snapshot::unpack(word);
        if found.phase == BreakerState::Closed {
            return Some(Permit { round: found.round, probe: false });
        }
        let now = now();
        if now < found.probe_at {
            return None;
        }
        let probing = found.probe(now);
        let permit = Permit { round: probing.round, probe: true };
        // Of those who come at once one probes.
        let first = self.state.compare_exchange(word, probing.pack(), Ordering::AcqRel, Ordering::Acquire);
        first.is_ok().then_some(permit)
    }

    /// Leave to say that a question asked together with others failed; none unless it is closed.
    #[cfg(feature = "cluster")]
    pub(crate) fn join(&self) -> Option<Permit> {
        let found = self.load();
        (found.phase == BreakerState::Closed).then_some(Permit { round: found.round, probe: false })
    }

    /// Whether answers are no news: it is closed, and there was no failure a moment ago.
    pub(crate) fn is_calm(&self) -> bool {
        let found = self.load();
        found.phase == BreakerState::Closed && found.recent.failed == 0
    }

    /// Is told that the store answered; whether it is asked again from now on. The time matters only
    /// if it failed a moment ago.
    pub(crate) fn answered(&self, permit: Permit, now: impl Fn() -> u64) -> bool {
        let before = self.change(permit, |found| found.answered(&now));
        let closed = before.filter(|before| before.phase != BreakerState::Closed);
        if let Some(Snapshot { probes, .. }) = closed {
            self.closed.fetch_max(now() << PROBES_BITS | probes, Ordering::Relaxed);
        }
        closed.is_some()
    }

    /// Is told that the store failed; if it is not asked now, in which state that was told.
    pub(crate) fn failed(&self, permit: Permit, now: u64) -> Option<BreakerState> {
        let (mut closed, again) = (false, self.probes_again(now));
        let before = self.change(permit, |found| {
            if found.phase == BreakerState::Closed && found.recent.in_row == 0 {
                // Not stored: who was held up here may be of a spell that is long over.
                self.failing_since.fetch_max(now, Ordering::Relaxed);
            }
            let next = found.failed(now, again);
            closed = next.phase == BreakerState::Closed;
            Some(next)
        });
        before.filter(|_| !closed).map(|before| before.phase)
    }

    /// Is told that the store was not asked after all, or that nobody waited for its answer: a probe
    /// leaves it to the requests from a time on.
    pub(crate) fn gave_up(&self, permit: Permit, probe_at: impl Fn() -> u64) {
        self.change(permit, |found| found.gave_up(&probe_at));
    }

    /// How long until the next probe may begin.
    pub(crate) fn next_probe(&self, now: u64) -> Duration {
        let found = self.load();
        let wait = if found.phase == BreakerState::Closed { 0 } else { found.probe_at.saturating_sub(now) };
        Duration::from_millis(wait)
    }

    /// When the failures began after which the store has not answered yet, if it fails.
    pub(crate) fn failing_since(&self) -> Option<u64> {
        let found = self.load();
        (found.phase != BreakerState::Closed || found.recent.in_row > 0).then(|| self.first_failure())
    }

    /// When the last failures in a row began.
    pub(crate) fn first_failure(&self) -> u64 {
        self.failing_since.load(Ordering::Relaxed)
    }

    /// After how many probes it opens now: a store that answers a probe and fails again at once is not
    /// to be asked ever again after the shortest wait.
    pub(super) fn probes_again(&self, now: u64) -> u64 {
        let closed = self.closed.load(Ordering::Relaxed);
        let (closed_at, probes) = (closed >> PROBES_BITS, closed & ((1 << PROBES_BITS) - 1));
        if closed > 0 && now.saturating_sub(closed_at) < WINDOW_MS { probes } else { 0 }
    }

    pub(super) fn load(&self) -> Snapshot {
        Snapshot::unpack(self.state.load(Ordering::Acquire))
    }

    /// Changes the state in which a permit was given, if it still stands; returns it.
    fn change(&self, permit: Permit, mut change: impl FnMut(Snapshot) -> Option<Snapshot>) -> Option<Snapshot> {
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let found = Snapshot::unpack(word);
            if found.round == permit.round { change(found).map(Snapshot::pack) } else { None }
        });
        changed.ok().map(Snapshot::unpack)
    }
}

/// A time as a breaker is told it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
