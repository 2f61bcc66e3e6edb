//! Strikes of checks that are refused from the cache.
//!
//! The store counts strikes, and a cached refusal does not reach it. So a strike is counted in the cached refusal, and
//! moves to the store with the next call for the same check. The strike that would begin a ban is never refused from
//! the cache: the store decides it, with those that were counted here. All that can get lost, which is what an entry
//! has when it is dropped or forgotten and what a failed call carried, delays a ban, and nothing counts twice.
//!
//! Refusals by a cached ban are no strikes, also of bans that refusals extend: the store would take them for strikes if
//! the ban ended before the next call. That call extends the ban by itself if it goes on.

use std::time::Duration;

use crate::core::{Ban, Outcome};
use crate::store::Check;

/// How a cached refusal stands with the ban of its key. Times are microseconds of the cache's clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing {
    /// The key is banned.
    Banned {
        /// When the ban ends, counted from the reply.
        ends: u64,
    },
    /// It is not, or there is no ban.
    Free {
        /// How many strikes banned the key when the store replied.
        left: u16,
        /// Strikes since then, which the store does not know of yet.
        strikes: u32,
        /// When the first of them was.
        first: u64,
    },
}

impl Standing {
    /// Returns that of an outcome which was returned at `now`.
    pub(super) fn of(outcome: &Outcome, now: u64) -> Self {
        match outcome.banned_for() {
            Some(left) => Self::Banned { ends: now.saturating_add(micros(left)) },
            None => Self::Free { left: outcome.left_to_strike(), strikes: 0, first: 0 },
        }
    }

    /// Returns when the ban ends, if the key is banned.
    pub(super) fn ban_ends(self) -> Option<u64> {
        match self {
            Self::Banned { ends } => Some(ends),
            Self::Free { .. } => None,
        }
    }

    /// Counts a strike at `now`; those whose window is over are dropped.
    pub(super) fn strike(&mut self, ban: &Ban, now: u64) {
        let counted = self.counted(ban, now);
        if let Self::Free { strikes, first, .. } = self {
            *first = if counted == 0 { now } else { *first };
            *strikes = counted.saturating_add(1);
        }
    }

    /// Takes the strikes, and returns how many there are and how long ago the first was, in milliseconds rounded up;
    /// `None` if there are none.
    pub(super) fn take(&mut self, now: u64) -> Option<(u32, Duration)> {
        let Self::Free { strikes, first, .. } = self else { return None };
        let strikes = std::mem::take(strikes);
        let age = now.checked_sub(*first)?;
        (strikes > 0).then(|| (strikes, Duration::from_millis(age.div_ceil(1_000))))
    }

    /// Returns the standing by a later reply: with the strikes since the call, for the next one.
    pub(super) fn renewed(self, later: Self) -> Self {
        match (self, later) {
            (Self::Free { strikes, first, .. }, Self::Free { left, .. }) => Self::Free { left, strikes, first },
            (_, later) => later,
        }
    }

    /// Lowers the number of strikes that ban the key to that of another reply.
    pub(super) fn lower(&mut self, other: Self) {
        if let (Self::Free { left, .. }, Self::Free { left: lower, .. }) = (self, other) {
            *left = lower.min(*left);
        }
    }

    /// Returns whether one more strike would begin a ban, as far as this process knows.
    fn is_last(self, ban: &Ban, now: u64) -> bool {
        let counted = self.counted(ban, now);
        matches!(self, Self::Free { left, .. } if counted.saturating_add(1) >= u32::from(left))
    }

    /// Returns the strikes at `now` that the store does not know of: none once their window is over.
    fn counted(self, ban: &Ban, now: u64) -> u32 {
        match self {
            Self::Free { strikes, first, .. } if now < first.saturating_add(micros(ban.within())) => strikes,
            _ => 0,
        }
    }
}

/// Returns whether a check of a request has a ban.
pub(super) fn has_bans(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.ban.is_some())
}

/// Returns whether the store has to decide a check that the cache could refuse: one more strike would begin a ban of
/// its key, as far as this process knows, or it carries strikes that another cache has counted.
pub(super) fn is_for_the_store(check: &Check, standing: Standing, now: u64) -> bool {
    match check.ban.as_deref() {
        Some(ban) if ban.carried > 0 => true,
        Some(ban) => check.strikes() && standing.is_last(&ban.ban, now),
        None => false,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
