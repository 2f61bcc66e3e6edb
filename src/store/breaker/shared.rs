//! A breaker that several threads share.
//!
//! Each method reads the word, computes the next one and stores it by compare-and-swap, so the
//! state changes as a whole and without a lock. Every order of concurrent calls is tried by loom
//! (`models.rs`).
//!
//! A call goes like this:
//!
//! 1. `acquire` returns a permit, or none: then the store is not called.
//! 2. The caller calls the store. What a probe does is described at [`Permit::is_probe`].
//! 3. It reports the outcome with the permit, once: `succeeded`, `failed` or `gave_up`.
//!
//! Reports of replies may be left out while the breaker `is_calm`. A probe that is never reported
//! keeps the breaker half-open, but does not keep others from probing.
//!
//! Two times are kept beside the word, as it has no room for them. They only grow (`fetch_max`), so
//! a thread that was held up for long cannot overwrite what is newer; they matter for logs, for how
//! long all requests are admitted, and for the length of waits.

use std::time::Duration;

use super::snapshot::WINDOW_MS;
use super::snapshot::{BreakerState, PROBES_BITS, Snapshot};
use super::sync::{AtomicU64, Ordering};

/// The longest time of a probe: one that takes longer has failed, whatever the budget, so that few
/// tasks probe at once.
pub(crate) const LONGEST_PROBE: Duration = Duration::from_secs(15);

/// The permission to call the store once. It is returned with the outcome of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    /// The round in which it was given.
    round: u64,
    /// Whether it was given while the breaker was not closed.
    probe: bool,
}

impl Permit {
    /// Returns whether the outcome decides if the store is called again.
    pub(crate) fn is_probe(self) -> bool {
        self.probe
    }
}

/// A circuit breaker. It is shared by reference; nothing in it blocks.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// A packed [`Snapshot`].
    pub(super) state: AtomicU64,
    /// When the last failures in a row began, as reported.
    failing_since: AtomicU64,
    /// When it closed last, and how many probes that took, in the low `PROBES_BITS`; 0 if it never
    /// did.
    closed: AtomicU64,
}

impl Breaker {
    /// A closed breaker without failures.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU64::new(0), failing_since: AtomicU64::new(0), closed: AtomicU64::new(0) }
    }

    /// Returns the phase: closed, open or half-open.
    pub(crate) fn state(&self) -> BreakerState {
        self.load().phase
    }

    /// Returns the permit for a call, or `None` if the store must not be called now. The time is
    /// read only while the breaker is not closed.
    ///
    /// If several callers come at once when a probe is due, one receives the permit.
    pub(crate) fn acquire(&self, now: impl FnOnce() -> u64) -> Option<Permit> {
        let word = self.state.load(Ordering::Acquire);
        let state = Snapshot::unpack(word);
        if state.phase == BreakerState::Closed {
            return Some(Permit { round: state.round, probe: false });
        }
        let now = now();
        if now < state.probe_at {
            return None;
        }
        let probing = state.probe(now);
        let permit = Permit { round: probing.round, probe: true };
        // One of several concurrent callers probes.
        let first = self.state.compare_exchange(word, probing.pack(), Ordering::AcqRel, Ordering::Acquire);
        first.is_ok().then_some(permit)
    }

    /// Returns a permit to report a failure of calls that were never sent; `None` unless the
    /// breaker is closed.
    #[cfg(feature = "cluster")]
    pub(crate) fn join(&self) -> Option<Permit> {
        let state = self.load();
        (state.phase == BreakerState::Closed).then_some(Permit { round: state.round, probe: false })
    }

    /// Returns whether a reply changes nothing: the breaker is closed, and no failure is in its
    /// window. Callers then need not report it.
    pub(crate) fn is_calm(&self) -> bool {
        let state = self.load();
        state.phase == BreakerState::Closed && state.recent.failed == 0
    }

    /// Reports a reply. Returns whether it closed the breaker, which is true for one caller. The
    /// time is read only if there was a failure.
    pub(crate) fn succeeded(&self, permit: Permit, now: impl Fn() -> u64) -> bool {
        let before = self.change(permit, |state| state.succeeded(&now));
        let closed = before.filter(|before| before.phase != BreakerState::Closed);
        if let Some(Snapshot { probes, .. }) = closed {
            self.closed.fetch_max(now() << PROBES_BITS | probes, Ordering::Relaxed);
        }
        closed.is_some()
    }

    /// Reports a failure at `now`. Returns the phase it was in if it is not closed afterwards, so
    /// `Some(Closed)` means that this failure opened it; `None` if it is still closed, or if the
    /// permit is of an earlier round.
    pub(crate) fn failed(&self, permit: Permit, now: u64) -> Option<BreakerState> {
        let (mut closed, again) = (false, self.probes_again(now));
        let before = self.change(permit, |state| {
            if state.phase == BreakerState::Closed && state.recent.in_row == 0 {
                // Not stored: a thread that was held up here may report failures that are long over.
                self.failing_since.fetch_max(now, Ordering::Relaxed);
            }
            let next = state.failed(now, again);
            closed = next.phase == BreakerState::Closed;
            Some(next)
        });
        before.filter(|_| !closed).map(|before| before.phase)
    }

    /// Reports that the call has no outcome: it was not made, or its caller stopped waiting. After
    /// a probe another request may probe from `probe_at` on.
    pub(crate) fn gave_up(&self, permit: Permit, probe_at: impl Fn() -> u64) {
        self.change(permit, |state| state.gave_up(&probe_at));
    }

    /// Returns how long until the next probe may begin; zero if it is closed.
    pub(crate) fn next_probe(&self, now: u64) -> Duration {
        let state = self.load();
        let wait = if state.phase == BreakerState::Closed { 0 } else { state.probe_at.saturating_sub(now) };
        Duration::from_millis(wait)
    }

    /// Returns when the failures began, in milliseconds, if the store has not replied since.
    pub(crate) fn failing_since(&self) -> Option<u64> {
        let state = self.load();
        (state.phase != BreakerState::Closed || state.recent.in_row > 0).then(|| self.first_failure())
    }

    /// Returns when the last failures in a row began, in milliseconds, even if the store has
    /// replied since.
    pub(crate) fn first_failure(&self) -> u64 {
        self.failing_since.load(Ordering::Relaxed)
    }

    /// Returns the number of probes to go on from if the breaker opens now: those that closing took
    /// if that was less than a second ago, else 0. So a store that replies to a probe and fails
    /// again at once is not always called again after the shortest wait.
    pub(super) fn probes_again(&self, now: u64) -> u64 {
        let closed = self.closed.load(Ordering::Relaxed);
        let (closed_at, probes) = (closed >> PROBES_BITS, closed & ((1 << PROBES_BITS) - 1));
        if closed > 0 && now.saturating_sub(closed_at) < WINDOW_MS { probes } else { 0 }
    }

    /// Returns the current state.
    pub(super) fn load(&self) -> Snapshot {
        Snapshot::unpack(self.state.load(Ordering::Acquire))
    }

    /// Changes the state if the permit's round is the current one. Returns the state before; `None`
    /// if nothing was changed. `change` may run several times.
    fn change(&self, permit: Permit, mut change: impl FnMut(Snapshot) -> Option<Snapshot>) -> Option<Snapshot> {
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let state = Snapshot::unpack(word);
            if state.round == permit.round { change(state).map(Snapshot::pack) } else { None }
        });
        changed.ok().map(Snapshot::unpack)
    }
}

/// Converts a duration to the milliseconds that breakers count in.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
