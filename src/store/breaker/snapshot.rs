//! The state of a breaker at a time: what its word contains, and how it changes.
//!
//! All functions are pure: they return the next state, and `shared.rs` stores it if no other thread
//! was faster. An outage, with times in milliseconds:
//!
//! | time | event | phase | probes | in flight | next probe at |
//! | --- | --- | --- | --- | --- | --- |
//! | 0 | the fifth failure in a row | open | 0 | 0 | 50 |
//! | 50 | a request probes | half-open | 1 | 1 | 150 |
//! | 80 | the probe fails | open | 1 | 0 | 150 |
//! | 150 | a request probes | half-open | 2 | 1 | 350 |
//! | 350 | another one does; the last has no outcome yet | half-open | 3 | 2 | 750 |
//! | 360 | one of the two succeeds | closed | | | |
//!
//! The word, from its lowest bit:
//!
//! | bits | of a closed breaker | bits | of any other |
//! | --- | --- | --- | --- |
//! | 2 | phase | 2 | phase |
//! | 14 | round | 14 | round |
//! | 3 | failures in a row | 3 | probes in a row |
//! | 8 | failures of the window | 5 | probes in flight |
//! | 8 | replies of the window | 40 | when the next may begin, ms |
//! | 27 | start of the window, ms | | |
//!
//! A number that is too large for its bits is stored as the largest.

/// The wait before the first probe, in milliseconds. From the beginning of one probe to that of the
/// next it is twice as long each time, up to the longest.
pub(crate) const FIRST_WAIT_MS: u64 = 50;
/// The longest wait from the beginning of one probe to that of the next, in milliseconds.
const LONGEST_WAIT_MS: u64 = 500;

/// The state of a circuit breaker: whether a store, or one of its servers, is called.
///
/// [`OnFailure`](crate::OnFailure) has what counts as a failure, and the times.
///
/// # Examples
///
/// ```
/// use tollgate::{BreakerState, MemoryStore, Policy, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100)));
/// assert_eq!(layer.breaker_state(), BreakerState::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is called: it replies, or has not failed often enough.
    Closed,
    /// The store is not called: it failed a moment ago.
    Open,
    /// The store is called by a probe only; other requests do not wait for its outcome.
    HalfOpen,
}

/// The state of a breaker at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// Closed, open or half-open.
    pub(super) phase: BreakerState,
    /// The number of this phase, modulo 2^14: outcomes of calls of an earlier one are ignored. Open
    /// and half-open share a round, as the same probes count in both.
    pub(super) round: u64,
    /// The recent outcomes, while it is closed.
    pub(super) recent: Recent,
    /// Probes begun in a row, as far as they make waits longer (7 at most), while it is not closed.
    pub(super) probes: u64,
    /// How many of these are in flight: 31 at most. Each of them may close it.
    pub(super) in_flight: u64,
    /// When the next request may probe, in milliseconds, whether or not earlier probes have an
    /// outcome by then.
    pub(super) probe_at: u64,
}

impl Snapshot {
    /// Returns the state with one more probe, begun at `now`. If too many are in flight, the
    /// earlier ones are given up: a new round begins, with this one only.
    pub(super) fn probe(self, now: u64) -> Self {
        let probes = (self.probes + 1).min(low(PROBES_BITS));
        let probing = Self { probes, probe_at: now.saturating_add(wait(probes)), ..self };
        if self.in_flight == low(IN_FLIGHT_BITS) {
            return Self { in_flight: 1, ..probing.next(BreakerState::HalfOpen) };
        }
        Self { in_flight: self.in_flight + 1, phase: BreakerState::HalfOpen, ..probing }
    }

    /// Returns the state after a failure at `now`. A closed breaker that opens by it waits as if
    /// there had been `probes` probes already; otherwise a probe has failed.
    pub(super) fn failed(self, now: u64, probes: u64) -> Self {
        if self.phase != BreakerState::Closed {
            return self.probe_ended();
        }
        let recent = self.recent.failed(now);
        if recent.opens() { self.open(probes, now) } else { Self { recent, ..self } }
    }

    /// Returns the state after a reply: closed, if it was not; `None` if nothing changes.
    pub(super) fn succeeded(self, now: impl FnOnce() -> u64) -> Option<Self> {
        match self.phase {
            BreakerState::Closed => self.recent.succeeded(now).map(|recent| Self { recent, ..self }),
            _ => Some(Self { recent: Recent::default(), ..self.next(BreakerState::Closed) }),
        }
    }

    /// Begins the next round, in a phase.
    pub(super) fn next(self, phase: BreakerState) -> Self {
        Self { phase, round: (self.round + 1) & low(ROUND_BITS), ..self }
    }

    /// Returns the state after a probe that has no outcome: it does not make waits longer, and the
    /// next one may begin at `probe_at` if that is earlier. `None` if the breaker is closed.
    pub(super) fn gave_up(self, probe_at: impl FnOnce() -> u64) -> Option<Self> {
        let undone = || {
            let (probes, probe_at) = (self.probes.saturating_sub(1), self.probe_at.min(probe_at()));
            Self { probes, probe_at, ..self.probe_ended() }
        };
        (self.phase != BreakerState::Closed).then(undone)
    }

    /// Returns the state with one probe less in flight.
    fn probe_ended(self) -> Self {
        let in_flight = self.in_flight.saturating_sub(1);
        let phase = if in_flight == 0 { BreakerState::Open } else { BreakerState::HalfOpen };
        Self { phase, in_flight, ..self }
    }

    /// Opens the breaker at `now`, in a new round, for a wait as after so many probes.
    fn open(self, probes: u64, now: u64) -> Self {
        Self { probes, in_flight: 0, probe_at: now.saturating_add(wait(probes)), ..self.next(BreakerState::Open) }
    }
}

/// Returns the wait until the next probe, in milliseconds, after `probes` in a row: `min(50 *
/// 2^probes, 500)`.
fn wait(probes: u64) -> u64 {
    (FIRST_WAIT_MS << probes.min(8)).min(LONGEST_WAIT_MS)
}

/// Bits of the phase.
const PHASE_BITS: u32 = 2;
/// Bits of the round.
const ROUND_BITS: u32 = 14;

// The other 48 bits of one that is not closed; those of a closed one are its recent past.
/// Bits of the probes in a row.
pub(super) const PROBES_BITS: u32 = 3;
/// Bits of the probes in flight. Half a second apart, 31 of them are as long as the longest probe,
/// 15 s.
const IN_FLIGHT_BITS: u32 = 5;
/// Bits of the time of the next probe: the rest, which lasts for 34 years.
const PROBE_AT_BITS: u32 = u64::BITS - PHASE_BITS - ROUND_BITS - PROBES_BITS - IN_FLIGHT_BITS;

impl Snapshot {
    /// Reads a word. The word 0 is a closed breaker without failures.
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
            Self { phase, round: take(ROUND_BITS), recent: Recent::default(), probes: 0, in_flight: 0, probe_at: 0 };
        if phase == BreakerState::Closed {
            let (in_row, failed, succeeded) = (take(IN_ROW_BITS), take(COUNT_BITS), take(COUNT_BITS));
            return Self { recent: Recent { in_row, failed, succeeded, start: take(START_BITS) }, ..state };
        }
        Self { probes: take(PROBES_BITS), in_flight: take(IN_FLIGHT_BITS), probe_at: take(PROBE_AT_BITS), ..state }
    }

    /// Writes the state as a word, which `unpack` reads as the same state.
    pub(super) fn pack(self) -> u64 {
        let (mut word, mut place) = (0, 0);
        let mut put = |value: u64, bits: u32| {
            word |= value.min(low(bits)) << place;
            place += bits;
        };
        let Recent { in_row, failed, succeeded, start } = self.recent;
        put(self.phase as u64, PHASE_BITS);
        put(self.round, ROUND_BITS);
        if self.phase == BreakerState::Closed {
            put(in_row, IN_ROW_BITS);
            put(failed, COUNT_BITS);
            put(succeeded, COUNT_BITS);
            put(start, START_BITS);
        } else {
            put(self.probes, PROBES_BITS);
            put(self.in_flight, IN_FLIGHT_BITS);
            put(self.probe_at, PROBE_AT_BITS);
        }
        word
    }
}

/// Failures in a row that open the breaker.
pub(super) const MOST_IN_ROW: u64 = 5;

/// Failures of one window that open the breaker, if there were no more replies in it.
///
/// Ten are enough to estimate the rate: if every tenth call fails by chance, ten failures that are
/// half of all occur in about 7 of a million windows; if every other one fails, in about every
/// other window.
pub(super) const MOST_IN_WINDOW: u64 = 10;

/// The length of a window, in milliseconds, from the failure it begins with. So a rate of one half
/// shows from 20 calls a second on; with fewer calls, only failures in a row open the breaker.
pub(super) const WINDOW_MS: u64 = 1_000;

// The 48 bits it has in the word of a closed breaker.
/// Bits of the failures in a row: `MOST_IN_ROW` at most.
pub(super) const IN_ROW_BITS: u32 = 3;
/// Bits of each count of a window, which together stay below 255.
pub(super) const COUNT_BITS: u32 = 8;
/// Bits of a window's start: times are compared modulo 2^27 ms, which is 37 hours.
pub(super) const START_BITS: u32 = 27;

/// The outcomes of the calls since a failure, for the time of a window, by which a closed breaker opens.
///
/// Failures in a row need no window; the rate is that of a window, which begins with a failure. Without failures nothing
/// is kept, so that calls that succeed change no shared memory. All of it is 48 bits of the word, which is why counts
/// have limits and the window's start only has the low bits of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// Failures since the last reply, however long ago.
    pub(super) in_row: u64,
    /// Failures of the window; 0 if there is no window, in which case replies change nothing.
    pub(super) failed: u64,
    /// Replies of the window.
    pub(super) succeeded: u64,
    /// When the window began, in milliseconds: the low bits of the time.
    pub(super) start: u64,
}

impl Recent {
    /// Returns the state after a failure at `now`, which begins a window if there is none.
    pub(super) fn failed(self, now: u64) -> Self {
        let in_row = self.in_row + 1;
        if self.is_live(now) {
            return Self { in_row, failed: self.failed + 1, ..self }.bounded();
        }
        Self { in_row, failed: 1, succeeded: 0, start: now & low(START_BITS) }
    }

    /// Returns the state after a reply, or `None` if nothing changes. The time is read only if
    /// there is a window.
    pub(super) fn succeeded(self, now: impl FnOnce() -> u64) -> Option<Self> {
        if self.failed == 0 {
            return None;
        }
        let counted = || Self { in_row: 0, succeeded: self.succeeded + 1, ..self }.bounded();
        Some(if self.is_live(now()) { counted() } else { Self::default() })
    }

    /// Returns whether the breaker opens: `in_row >= 5`, or `failed >= 10` and `failed >=
    /// succeeded`. Only meaningful right after a failure, which is the only thing that can make it
    /// true.
    pub(super) fn opens(self) -> bool {
        self.in_row >= MOST_IN_ROW || self.failed >= MOST_IN_WINDOW && self.failed >= self.succeeded
    }

    /// Returns whether `now` is in the window: `(now - start + 1000) mod 2^27 < 2000`.
    ///
    /// Concurrent callers may report their times in another order, so up to a second before the
    /// window's start counts too. A window that was not read for 37 hours may seem to be live
    /// again; then one old failure counts with the new ones.
    fn is_live(self, now: u64) -> bool {
        let age = now.wrapping_sub(self.start).wrapping_add(WINDOW_MS) & low(START_BITS);
        self.failed > 0 && age < 2 * WINDOW_MS
    }

    /// Halves both counts when they become large: of many calls the last ones matter.
    ///
    /// One failure among so many replies is forgotten, and the window with it, so that replies
    /// change nothing again.
    fn bounded(self) -> Self {
        if self.failed + self.succeeded < low(COUNT_BITS) {
            return self;
        }
        let halved = Self { failed: self.failed / 2, succeeded: self.succeeded / 2, ..self };
        if halved.failed == 0 { Self::default() } else { halved }
    }
}

/// Returns the largest number of so many bits; fewer than 64.
pub(super) const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}
