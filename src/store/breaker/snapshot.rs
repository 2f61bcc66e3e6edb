//! What the word of a breaker says, and how that changes.

use super::recent::{COUNT_BITS, IN_ROW_BITS, Recent, START_BITS, low};

/// The wait before the first probe. From the beginning of one to that of the next each is twice as
/// long, up to the longest.
pub(crate) const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 500;

/// Whether the store of a layer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// It is: it answers, or has not failed often enough.
    Closed,
    /// It is not: it failed a moment ago.
    Open,
    /// It is not, but for a request that asks whether it is back; the others do not wait for that.
    HalfOpen,
}

/// The state of a breaker at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) phase: BreakerState,
    /// Which phase in a row this is: answers to questions of an earlier one are late.
    pub(super) round: u64,
    /// While it is closed.
    pub(super) recent: Recent,
    /// Probes begun in a row, as far as they make waits longer; while it is not closed.
    pub(super) probes: u64,
    /// Of these, how many have no answer yet. Each of them may close it.
    pub(super) asking: u64,
    /// When the next request may probe, whether or not there are answers by then.
    pub(super) probe_at: u64,
}

impl Snapshot {
    /// With one more probe. Of too many without an answer the earlier ones are given up.
    pub(super) fn probe(self, now: u64) -> Self {
        let probes = (self.probes + 1).min(low(PROBES_BITS));
        let probing = Self { probes, probe_at: now.saturating_add(wait(probes)), ..self };
        if self.asking == low(ASKING_BITS) {
            return Self { asking: 1, ..probing.next(BreakerState::HalfOpen) };
        }
        Self { asking: self.asking + 1, phase: BreakerState::HalfOpen, ..probing }
    }

    /// After a failure; if it opens, it is as after so many probes.
    pub(super) fn failed(self, now: u64, probes: u64) -> Self {
        if self.phase != BreakerState::Closed {
            return self.heard();
        }
        let recent = self.recent.failed(now);
        if recent.opens() { self.open(probes, now) } else { Self { recent, ..self } }
    }

    /// After an answer; `None` if that is nothing new.
    pub(super) fn answered(self, now: impl FnOnce() -> u64) -> Option<Self> {
        match self.phase {
            BreakerState::Closed => self.recent.answered(now).map(|recent| Self { recent, ..self }),
            _ => Some(Self { recent: Recent::default(), ..self.next(BreakerState::Closed) }),
        }
    }

    pub(super) fn next(self, phase: BreakerState) -> Self {
        Self { phase, round: (self.round + 1) & low(ROUND_BITS), ..self }
    }

    /// After a probe that was none; `None` if it is closed.
    pub(super) fn gave_up(self, probe_at: impl FnOnce() -> u64) -> Option<Self> {
        let undone = || {
            let (probes, probe_at) = (self.probes.saturating_sub(1), self.probe_at.min(probe_at()));
            Self { probes, probe_at, ..self.heard() }
        };
        (self.phase != BreakerState::Closed).then(undone)
    }

    /// One probe less has no answer.
    fn heard(self) -> Self {
        let asking = self.asking.saturating_sub(1);
        let phase = if asking == 0 { BreakerState::Open } else { BreakerState::HalfOpen };
        Self { phase, asking, ..self }
    }

    /// Open, for the longer the more probes there were.
    fn open(self, probes: u64, now: u64) -> Self {
        Self { probes, asking: 0, probe_at: now.saturating_add(wait(probes)), ..self.next(BreakerState::Open) }
    }
}

/// The time to the next probe after so many.
fn wait(probes: u64) -> u64 {
    (FIRST_WAIT_MS << probes.min(8)).min(LONGEST_WAIT_MS)
}

const PHASE_BITS: u32 = 2;
const ROUND_BITS: u32 = 14;

// The other 48 bits of one that is not closed; those of a closed one are its recent past.
pub(super) const PROBES_BITS: u32 = 3;
/// Of probes half a second apart: 15 s.
const ASKING_BITS: u32 = 5;
const PROBE_AT_BITS: u32 = u64::BITS - PHASE_BITS - ROUND_BITS - PROBES_BITS - ASKING_BITS;

impl Snapshot {
    pub(super) fn unpack(mut word: u64) -> Self {
        let mut take = |bits| {
            let value = word & low(bits);
            word >>= bits;
            value
        };
        let phase = match take(PHASE_BITS) {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        };
        let state =
            Self { phase, round: take(ROUND_BITS), recent: Recent::default(), probes: 0, asking: 0, probe_at: 0 };
        if phase == BreakerState::Closed {
            let (in_row, failed, answered) = (take(IN_ROW_BITS), take(COUNT_BITS), take(COUNT_BITS));
            return Self { recent: Recent { in_row, failed, answered, start: take(START_BITS) }, ..state };
        }
        Self { probes: take(PROBES_BITS), asking: take(ASKING_BITS), probe_at: take(PROBE_AT_BITS), ..state }
    }

    pub(super) fn pack(self) -> u64 {
        let (mut word, mut place) = (0, 0);
        let mut put = |value: u64, bits: u32| {
            word |= value.min(low(bits)) << place;
            place += bits;
        };
        let Recent { in_row, failed, answered, start } = self.recent;
        put(self.phase as u64, PHASE_BITS);
        put(self.round, ROUND_BITS);
        if self.phase == BreakerState::Closed {
            put(in_row, IN_ROW_BITS);
            put(failed, COUNT_BITS);
            put(answered, COUNT_BITS);
            put(start, START_BITS);
        } else {
            put(self.probes, PROBES_BITS);
            put(self.asking, ASKING_BITS);
            put(self.probe_at, PROBE_AT_BITS);
        }
        word
    }
}
