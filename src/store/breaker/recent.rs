//! What became of questions lately.

/// Failures in a row that open it.
pub(super) const MOST_IN_ROW: u64 = 5;

/// Failures of one window that open it, if its answers are no more.
///
/// Ten say something of the rate: where every tenth question fails by chance, ten failures that are
/// half of all come about 7 times in a million windows; every other one, about every other window.
pub(super) const MOST_IN_WINDOW: u64 = 10;

/// A window begins with a failure. So long a rate of one half shows from 20 questions a second on;
/// where there are fewer, failures in a row have to tell.
pub(super) const WINDOW_MS: u64 = 1_000;

// The 48 bits it has in the word of a closed breaker.
pub(super) const IN_ROW_BITS: u32 = 3;
pub(super) const COUNT_BITS: u32 = 8;
pub(super) const START_BITS: u32 = 27;

/// What became of questions since a failure, for the time of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// Failures since the last answer, however long ago.
    pub(super) in_row: u64,
    /// 0 if there is no window: then answers change nothing.
    pub(super) failed: u64,
    pub(super) answered: u64,
    /// When the window began: the low bits of the time.
    pub(super) start: u64,
}

impl Recent {
    pub(super) fn failed(self, now: u64) -> Self {
        let in_row = self.in_row + 1;
        if self.is_live(now) {
            return Self { in_row, failed: self.failed + 1, ..self }.bounded();
        }
        Self { in_row, failed: 1, answered: 0, start: now & low(START_BITS) }
    }

    /// `None` if an answer is nothing new.
    pub(super) fn answered(self, now: impl FnOnce() -> u64) -> Option<Self> {
        if self.failed == 0 {
            return None;
        }
        let counted = || Self { in_row: 0, answered: self.answered + 1, ..self }.bounded();
        Some(if self.is_live(now()) { counted() } else { Self::default() })
    }

    pub(super) fn opens(self) -> bool {
        self.in_row >= MOST_IN_ROW || self.failed >= MOST_IN_WINDOW && self.failed >= self.answered
    }

    /// Those who ask at once may tell their times in another order: a window may seem to begin later.
    fn is_live(self, now: u64) -> bool {
        let age = now.wrapping_sub(self.start).wrapping_add(WINDOW_MS) & low(START_BITS);
        self.failed > 0 && age < 2 * WINDOW_MS
    }

    /// Counts that become large are halved: of many questions the last ones matter. A failure among
    /// as many answers is forgotten.
    fn bounded(self) -> Self {
        if self.failed + self.answered < low(COUNT_BITS) {
            return self;
        }
        let halved = Self { failed: self.failed / 2, answered: self.answered / 2, ..self };
        if halved.failed == 0 { Self::default() } else { halved }
    }
}

/// The largest number of so many bits.
pub(super) const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}
