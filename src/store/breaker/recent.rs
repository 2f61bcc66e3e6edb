//! The outcomes of recent calls that decide whether a closed breaker opens.
//!
//! Two measures are kept: failures in a row, which need no window, and the rate within a window of
//! a second that begins with a failure. Without failures nothing is kept, so that calls that
//! succeed change no shared memory.
//!
//! All of it is packed into 48 bits (see `snapshot.rs`), which is why counts have limits and the
//! window's start only has the low bits of the time.

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

/// The outcomes of the calls since a failure, for the time of a window.
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
