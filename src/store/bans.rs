//! Bans of the checks of one request, in every store that decides with the arithmetic of this crate.
//!
//! Checks and the states of their bans come in; which checks are barred goes out, before the request is decided, and
//! afterwards what its strikes leave to write. All bans are looked at before the first strike of the request, and
//! strikes are counted in the order of the checks, whether the request is admitted or refused.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Applied, Check, Mode, Taken};
use crate::core::algorithm::ban::{Banned, Struck, look, strike};
use crate::core::algorithm::{Found, State, Step};
use crate::core::{Ban, Lines, Outcome, PolicyName};

/// The bans of one request, in the order of its checks.
pub(super) struct Bans(SmallVec<[Bar; 1]>);

/// The ban of one check.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Bar {
    /// The place of the check in the request.
    check: usize,
    /// When it was looked at, in microseconds.
    now_us: u64,
    mode: Mode,
    ban: Ban,
    /// The state as it was found, or as strikes of the request left it.
    state: Option<State>,
    /// The kind of state that was found.
    found: Found,
    /// Whether the key was banned when the request came.
    barred: bool,
    /// Whether the check is a look that stands for one with a cost.
    tests: bool,
    /// Whether the check is a strike by its own quota.
    strikes: bool,
    /// For how many milliseconds the state matters, if it is to be written.
    life: Option<u64>,
    /// The length of the ban in milliseconds, if one began with this request.
    began: Option<u64>,
}

impl Bans {
    /// Those of a request whose checks have none.
    pub(super) fn none() -> Self {
        Self(SmallVec::new())
    }

    /// Looks at the bans of all checks. `state_of` returns the state of one, by its place among the bans.
    pub(super) fn look(checks: &[Check], now_us: u64, mut state_of: impl FnMut(usize) -> Option<State>) -> Self {
        let mut bars: SmallVec<[Bar; 1]> = SmallVec::new();
        for (check, of) in checks.iter().enumerate() {
            let Some(ban) = of.ban.as_deref() else { continue };
            let (ban, state) = (ban.ban, state_of(bars.len()));
            let Banned { ends, found, .. } = look(state.as_ref(), now_us / 1_000, &ban);
            let barred = now_us / 1_000 < ends;
            let (mode, tests, life, began) = (of.mode, of.tests(), None, None);
            bars.push(Bar { check, now_us, mode, ban, state, found, barred, tests, strikes: false, life, began });
        }
        Self(bars)
    }

    /// Returns whether no check has a ban.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the key of the check at an index was banned when the request came.
    pub(super) fn bars(&self, check: usize) -> bool {
        self.0.iter().any(|bar| bar.check == check && bar.barred)
    }

    /// Returns for each ban whether its key was banned when the request came.
    #[cfg(feature = "redis")]
    pub(super) fn barred(&self) -> impl Iterator<Item = bool> {
        self.0.iter().map(|bar| bar.barred)
    }

    /// Adds the bans of a part of a request, whose checks have these places in it.
    #[cfg(feature = "redis")]
    pub(super) fn add(&mut self, part: Self, places: &[usize]) {
        self.0.extend(part.0.into_iter().map(|bar| Bar { check: places[bar.check], ..bar }));
    }

    /// Counts the strikes of a request that was decided by these steps, of which those of bans that
    /// [test](Check::tests) are repeated for one unit.
    pub(super) fn strike(
        &mut self,
        checks: &[Check],
        steps: &[Step],
        mut step: impl FnMut(usize, Option<&State>, u64) -> Step,
    ) {
        for place in 0..self.0.len() {
            let bar = &mut self.0[place];
            let check = &checks[bar.check];
            let fits = if check.tests() { step(bar.check, None, 1).fits } else { steps[bar.check].fits };
            bar.strikes = check.strikes() && !fits;
            if (bar.strikes || check.strikes() && bar.barred)
                && let Some(struck) = strike(bar.state.as_ref(), bar.now_us / 1_000, &bar.ban)
            {
                self.struck(checks, place, &struck);
            }
        }
    }

    /// Notes what a strike came to, for all bans that are the same one.
    fn struck(&mut self, checks: &[Check], place: usize, struck: &Struck) {
        let counter = &checks[self.0[place].check].counter;
        for bar in self.0.iter_mut().filter(|bar| checks[bar.check].counter.shares_ban(counter)) {
            bar.state = Some(struck.state.clone());
        }
        let bar = &mut self.0[place];
        bar.life = Some(struck.life);
        bar.began = bar.began.or(struck.began);
    }

    /// Returns the outcome of the check at an index with what its ban adds to it.
    pub(super) fn note(&self, check: usize, outcome: Outcome, refused: bool) -> Outcome {
        let Some(bar) = self.0.iter().find(|bar| bar.check == check) else { return outcome };
        let ends = look(bar.state.as_ref(), bar.now_us / 1_000, &bar.ban).ends;
        let left_us = (ends * 1_000).saturating_sub(bar.now_us);
        let in_shadow = bar.mode == Mode::Shadow && (bar.barred || bar.strikes);
        let refused = refused || bar.tests && bar.strikes;
        if left_us > 0 && (refused && bar.mode == Mode::Enforce || in_shadow) {
            return outcome.banned(Duration::from_micros(left_us)).ban_began(bar.began.is_some());
        }
        outcome.with_ban().ban_began(bar.began.is_some())
    }

    /// Takes what is to be written: the place among the bans, the ban, its state, and for how many milliseconds that
    /// matters. The last write of one ban is the one that counts.
    pub(super) fn take_writes(&mut self) -> impl Iterator<Item = (usize, Ban, State, u64)> {
        let bars = self.0.iter_mut().enumerate();
        bars.filter_map(|(place, bar)| Some((place, bar.ban, bar.state.take()?, bar.life?)))
    }

    /// Logs the bans that began, and state that had to be set aside. Not to be called under a lock: who writes the log may
    /// ask the same store.
    pub(super) fn log(&self, checks: &[Check]) {
        for bar in &self.0 {
            let policy = checks[bar.check].counter.policy();
            bar.found.warn(policy);
            if let Some(length) = bar.began {
                log_ban(policy, Duration::from_millis(length));
            }
        }
    }
}

/// Returns, and logs, the result of a strike outside of any decision, by the state that it left; `units` is 1 if it
/// counted. If the key is banned and it counted, the ban began with it, as none counts during a ban.
pub(super) fn applied_strike(taken: &Taken, ban: &Ban, state: Option<&State>, units: u64, now_us: u64) -> Applied {
    let left_us = (look(state, now_us / 1_000, ban).ends * 1_000).saturating_sub(now_us);
    let applied = Applied::new(units, taken.stamp);
    if left_us == 0 {
        return applied;
    }
    let left = Duration::from_micros(left_us);
    if units > 0 {
        log_ban(taken.counter.policy(), left);
    }
    applied.banned(left, units > 0)
}

/// Logs the beginning of a ban, without the key: ten of a policy in 10 s.
fn log_ban(policy: &PolicyName, length: Duration) {
    static BANNED: Lines = Lines::ten();
    BANNED.log(policy, |more| {
        tracing::info!(code = "key_banned", policy = policy.as_str(), ?length, more, "a key was banned");
    });
}
