//! Stops asking a store that fails, and finds out when it is back.
//!
//! Pure: it is told the time, in milliseconds since a start of the caller's choice, and what became
//! of each question. Its state is one word that changes as a whole, so nobody ever waits for it.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Failures in a row after which the store is not asked any more.
pub(super) const MOST_FAILURES: u64 = 5;

/// The wait before the first probe; each later one is twice as long, up to the longest.
pub(super) const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 500;

/// Whether the store of a layer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// It is: it answers, or has not failed often enough in a row.
    Closed,
    /// It is not: it failed a moment ago.
    Open,
    /// One request asks whether it is back; the others do not wait for that.
    HalfOpen,
}

/// A circuit breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// A packed [`State`].
    state: AtomicU64,
    /// When the first of the present failures in a row was told.
    failing_since: AtomicU64,
    probe_life_ms: u64,
}

/// Leave to ask the store once: it goes with what became of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    round: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: BreakerState,
    /// Failures in a row while closed, else probes that failed in a row.
    failures: u64,
    /// Which phase in a row this is: answers to questions of an earlier one are late.
    round: u64,
    /// When the next request may probe.
    probe_at: u64,
}

impl Breaker {
    /// A closed breaker. A probe that nobody tells of is given up after `probe_life`.
    pub(crate) fn new(probe_life: Duration) -> Self {
        Self { state: AtomicU64::new(0), failing_since: AtomicU64::new(0), probe_life_ms: millis(probe_life) }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.load().phase
    }

    /// Leave to ask the store, or none. The time matters only while it is not closed.
    pub(crate) fn ask(&self, now: impl FnOnce() -> u64) -> Option<Permit> {
        let word = self.state.load(Ordering::Acquire);
        let found = State::unpack(word);
        if found.phase == BreakerState::Closed {
            return Some(Permit { round: found.round });
        }
        let now = now();
        if now < found.probe_at {
            return None;
        }
        let probe_at = now.saturating_add(self.probe_life_ms);
        let probing = State { probe_at, ..found.next(BreakerState::HalfOpen) };
        let permit = Permit { round: probing.round };
        // Of those who come at once one probes.
        let first = self.state.compare_exchange(word, probing.pack(), Ordering::AcqRel, Ordering::Acquire);
        first.is_ok().then_some(permit)
    }

    /// Is told that the store answered; whether it is asked again from now on.
    pub(crate) fn answered(&self, permit: Permit) -> bool {
        let before = self.change(permit, |found| match found.phase {
            BreakerState::Closed if found.failures == 0 => None,
            BreakerState::Closed => Some(State { failures: 0, ..found }),
            _ => Some(State { failures: 0, probe_at: 0, ..found.next(BreakerState::Closed) }),
        });
        before.is_some_and(|before| before.phase != BreakerState::Closed)
    }

    /// Is told that the store failed; if it is not asked from now on, in which state that was told.
    pub(crate) fn failed(&self, permit: Permit, now: u64) -> Option<BreakerState> {
        let before = self.change(permit, |found| {
            let failures = found.failures + 1;
            if found.phase != BreakerState::Closed {
                return Some(found.open(failures, now));
            }
            if failures == 1 {
                self.failing_since.store(now, Ordering::Relaxed);
            }
            Some(if failures < MOST_FAILURES { State { failures, ..found } } else { found.open(0, now) })
        });
        let opened = |before: &State| before.phase != BreakerState::Closed || before.failures + 1 >= MOST_FAILURES;
        before.filter(opened).map(|before| before.phase)
    }

    /// Is told that the store was not asked after all, or that nobody waited for its answer: a probe
    /// leaves it to the requests from a time on.
    pub(crate) fn gave_up(&self, permit: Permit, probe_at: impl Fn() -> u64) {
        self.change(permit, |found| {
            let open = |_| State { probe_at: probe_at(), ..found.next(BreakerState::Open) };
            Some(found.phase).filter(|phase| *phase != BreakerState::Closed).map(open)
        });
    }

    /// How long until the next probe, or until one under way is given up.
    pub(crate) fn next_probe(&self, now: u64) -> Duration {
        let found = self.load();
        let wait = if found.phase == BreakerState::Closed { 0 } else { found.probe_at.saturating_sub(now) };
        Duration::from_millis(wait)
    }

    /// When the failures began after which the store has not answered yet, if it fails.
    pub(crate) fn failing_since(&self) -> Option<u64> {
        let found = self.load();
        (found.phase != BreakerState::Closed || found.failures > 0).then(|| self.first_failure())
    }

    /// When the last failures in a row began.
    pub(crate) fn first_failure(&self) -> u64 {
        self.failing_since.load(Ordering::Relaxed)
    }

    fn load(&self) -> State {
        State::unpack(self.state.load(Ordering::Acquire))
    }

    /// Changes the state in which a permit was given, if it still stands; returns it.
    fn change(&self, permit: Permit, mut change: impl FnMut(State) -> Option<State>) -> Option<State> {
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let found = State::unpack(word);
            if found.round == permit.round { change(found).map(State::pack) } else { None }
        });
        changed.ok().map(State::unpack)
    }
}

const FAILURES_BITS: u32 = 6;
const ROUND_BITS: u32 = 16;
const TIME_BITS: u32 = 40;

impl State {
    fn unpack(word: u64) -> Self {
        let phase = match word & 3 {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        };
        let failures = (word >> 2) & low(FAILURES_BITS);
        let round = (word >> (2 + FAILURES_BITS)) & low(ROUND_BITS);
        Self { phase, failures, round, probe_at: word >> (2 + FAILURES_BITS + ROUND_BITS) }
    }

    fn pack(self) -> u64 {
        let phase = match self.phase {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            BreakerState::HalfOpen => 2,
        };
        let probe_at = self.probe_at.min(low(TIME_BITS)) << (2 + FAILURES_BITS + ROUND_BITS);
        probe_at | self.round << (2 + FAILURES_BITS) | self.failures.min(low(FAILURES_BITS)) << 2 | phase
    }

    fn next(self, phase: BreakerState) -> Self {
        Self { phase, round: (self.round + 1) & low(ROUND_BITS), ..self }
    }

    /// Open, for the longer the more probes failed.
    fn open(self, probes: u64, now: u64) -> Self {
        let wait = (FIRST_WAIT_MS << probes.min(8)).min(LONGEST_WAIT_MS);
        Self { failures: probes, probe_at: now.saturating_add(wait), ..self.next(BreakerState::Open) }
    }
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
