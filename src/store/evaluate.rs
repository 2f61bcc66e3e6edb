//! Decisions over all checks of a request, all or nothing, shared by stores.
//!
//! A store provides the states of the checks, and the time:
//!
//! - `evaluate` decides each check on the state that the earlier ones would leave, so that checks of one counter count
//!   together
//! - `finish` counts strikes, and corrects the steps of a denied request, because nothing was taken
//! - `decided` builds the decision and the receipt
//! - `adjustment` and `applied` are the two ends of a change to what was taken
//! - `name` is the name of a state in a database
//!
//! The checks are those of [`with_bans`](super::bans::with_bans). All functions are pure. Lua decides by the same rules
//! (`lua/`), and tests compare the two.

use std::borrow::Cow;
use std::iter;

use smallvec::SmallVec;

use super::bans::{applied_strike, ban_before, noted, strike};
use super::{Change, ChangeResult, Check, Counter, Mode, Receipt, ReceiptItem, StoreDecision, StoreId};
use crate::core::algorithm::{self, Adjustment, CounterState, Refund, StateStatus, Step};
use crate::core::decision::{Decision, Measures, Outcome, Source};
use crate::core::{Lines, PolicyName, Quota};

pub(super) type Steps = SmallVec<[Step; 4]>;

/// A repeated counter is decided at the sum of its costs.
pub(super) fn evaluate<'a>(
    checks: &[Check],
    state: impl Fn(usize) -> Option<Cow<'a, CounterState>>,
    now: impl Fn(&Quota) -> u64,
) -> Steps {
    let mut steps = Steps::new();
    for (index, check) in checks.iter().enumerate() {
        let (units, left) = earlier(checks, &steps, index);
        let cost = cost(checks, &steps, index);
        let (left, units) = if cost == 0 { (left, 0) } else { (None, units) };
        let left = left.map(Cow::Borrowed).or_else(|| state(index));
        let decided = step(check, left.as_deref(), now(check.counter.quota()), units.saturating_add(cost));
        steps.push(decided);
    }
    steps
}

/// Returns `true` if an enforced check denies the request.
pub(super) fn finish<'a>(
    checks: &[Check],
    steps: &mut [Step],
    state: impl Fn(usize) -> Option<Cow<'a, CounterState>>,
    now: impl Fn(&Quota) -> u64,
) -> bool {
    let refused = checks.iter().zip(&*steps).any(|(check, step)| check.mode == Mode::Enforce && !step.fits);
    strike(checks, steps, &state, &now);
    if refused {
        look_again(checks, steps, state, now);
    }
    refused
}

/// Recomputes what remains for checks that fit, because a denied request takes nothing. Its strikes stay.
pub(super) fn look_again<'a>(
    checks: &[Check],
    steps: &mut [Step],
    state: impl Fn(usize) -> Option<Cow<'a, CounterState>>,
    now: impl Fn(&Quota) -> u64,
) {
    for (index, (check, decided)) in checks.iter().zip(steps).enumerate() {
        if decided.fits && !check.counter.is_ban() {
            *decided = step(check, state(index).as_deref(), now(check.counter.quota()), 0);
        }
    }
}

pub(super) fn step(check: &Check, state: Option<&CounterState>, now: u64, cost: u64) -> Step {
    check.counter.quota().decide(state, now, cost, check.floor)
}

fn cost(checks: &[Check], steps: &[Step], index: usize) -> u64 {
    let Check { cost, mode, .. } = checks[index];
    let is_banned = mode == Mode::Shadow && ban_before(checks, steps, index).is_some_and(|ban| !ban.fits);
    if is_banned { 0 } else { cost }
}

pub(super) fn is_kept(checks: &[Check], steps: &[Step], index: usize, refused: bool) -> bool {
    let is_taken = || !refused && steps[index].fits && cost(checks, steps, index) > 0;
    checks[index].counter.is_ban() || is_taken()
}

/// Counts checks that fit, and enforced checks even if they do not.
fn earlier<'a>(checks: &[Check], steps: &'a [Step], index: usize) -> (u64, Option<&'a CounterState>) {
    let (mut units, mut state) = (0_u64, None);
    for (before, (check, step)) in checks[..index].iter().zip(steps).enumerate() {
        let counts = step.fits || check.mode == Mode::Enforce;
        if counts && check.counter.shares_state(&checks[index].counter) {
            units = units.saturating_add(cost(checks, steps, before));
            state = step.state.as_ref().or(state);
        }
    }
    (units, state)
}

pub(super) fn decided(id: StoreId, checks: &[Check], steps: &[Step], refused: bool) -> StoreDecision {
    if let ([check], [step]) = (checks, steps) {
        return decided_one(id, check, step);
    }
    // Faster than to collect the few there are.
    let mut places = SmallVec::<[usize; 8]>::new();
    for (place, check) in checks.iter().enumerate() {
        if !check.counter.is_ban() {
            places.push(place);
        }
    }
    let noted = |place: &usize| {
        let outcome = outcome(&checks[*place], &steps[*place]);
        if let Some(ban) = ban_before(checks, steps, *place) { noted(outcome, ban) } else { outcome }
    };
    let decision = Decision::new(places.iter().map(noted), Source::Store);
    if refused {
        return StoreDecision { decision, receipt: Receipt::empty(id) };
    }
    let mut items = SmallVec::with_capacity(places.len());
    for &place in &places {
        items.push(taken(&checks[place], &steps[place], cost(checks, steps, place)));
    }
    StoreDecision { decision, receipt: Receipt::from_items(id, items) }
}

#[inline]
pub(super) fn decided_one(id: StoreId, check: &Check, step: &Step) -> StoreDecision {
    let decision = Decision::new(iter::once_with(|| outcome(check, step)), Source::Store);
    let receipt = if decision.is_allowed() {
        Receipt::from_items(id, SmallVec::from_buf([taken(check, step, check.cost)]))
    } else {
        Receipt::empty(id)
    };
    StoreDecision { decision, receipt }
}

pub(super) fn applied(taken: &ReceiptItem, change: Change, units: u64, step: &Step) -> ChangeResult {
    if taken.counter.is_ban() {
        return applied_strike(taken, units, step);
    }
    let is_in_line = taken.counter.quota().facts().refund == Refund::LastInLine;
    let keeps = matches!(change, Change::Refund(_)) && (units == 0 || !is_in_line);
    let look = Check { floor: taken.floor, ..Check::new(taken.counter.clone(), 0) };
    ChangeResult::new(units, if keeps { taken.stamp } else { step.stamp }).outcome(outcome(&look, step))
}

/// Units replenished since are not refunded. They are replenished in the order they were taken: a stamp `s` with `u`
/// units reaches to `s + u * window / limit`, in ticks. `before` is what the same request took earlier.
pub(super) fn adjustment(before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> Adjustment {
    let ReceiptItem { counter, units, stamp, .. } = taken;
    let quota = counter.quota();
    let back = match change {
        Change::Refund(back) => back,
        // Only slots are renewed.
        Change::Renew(_) if !quota.facts().held => return Adjustment::new(Change::Refund(0), *stamp),
        _ => return Adjustment::new(change, *stamp),
    };
    if quota.facts().refund != Refund::Unrefilled || *stamp == algorithm::NEVER {
        return Adjustment::new(change, *stamp);
    }
    let refilled = |(since, units): (u64, u64)| {
        let ticks = u128::from(units) * u128::from(quota.window_ticks()) / u128::from(quota.limit());
        since.saturating_add(u64::try_from(ticks).unwrap_or(algorithm::NEVER)).min(algorithm::NEVER - 1)
    };
    let same = before.iter().filter(|part| part.counter.shares_state(&taken.counter));
    let parts = same.map(|part| (part.stamp, part.units)).chain([(*stamp, units.saturating_sub(back))]);
    let line = parts.fold((0, 0), |line, (stamp, units)| {
        if stamp <= refilled(line) { (line.0, line.1.saturating_add(units)) } else { (stamp, units) }
    });
    Adjustment::new(change, refilled(line))
}

/// The target of a change outside of decisions: nothing was taken, and no stamp limits the change.
pub(super) fn untaken(counter: &Counter) -> ReceiptItem {
    ReceiptItem { counter: counter.clone(), units: 0, floor: 0, stamp: algorithm::NEVER }
}

fn outcome(check: &Check, step: &Step) -> Outcome {
    let Step { fits, remaining, wait, reset, delay, .. } = *step;
    let window = check.counter.quota().window_of(step);
    Outcome::from_measures(check, &Measures { fits, remaining, wait, reset, window, delay })
}

/// Nothing if the check did not fit, which shadow mode allows.
fn taken(check: &Check, step: &Step, cost: u64) -> ReceiptItem {
    let units = if step.fits { cost } else { 0 };
    ReceiptItem { counter: check.counter.clone(), units, floor: check.floor, stamp: step.stamp }
}

/// `{<key>}:<policy>:<shape>`, in parts, where the shape is the format of states, the algorithm, the window and its
/// tick. Without the limit, so that a changed limit keeps the units used.
#[inline]
pub(super) fn name(counter: &Counter) -> [&[u8]; 4] {
    [b"{", counter.key().as_bytes(), b"}:", counter.limit().state.as_bytes()]
}

static AHEAD: Lines = Lines::ten();

#[cfg(feature = "redis")]
static FOREIGN: Lines = Lines::ten();

impl StateStatus {
    /// The key starts with a new state, which allows more than the limit.
    #[inline]
    pub(super) fn warn(self, policy: &PolicyName) {
        match self {
            Self::Kept | Self::Fresh => {}
            // It is an error, not a decision.
            #[cfg(feature = "redis")]
            Self::Outside => {}
            Self::Ahead => AHEAD.log(policy.as_str(), |more| {
                tracing::warn!(
                    code = "state_ahead",
                    policy = policy.as_str(),
                    more,
                    "state ahead of the clock set aside"
                );
            }),
            #[cfg(feature = "redis")]
            Self::Foreign => FOREIGN.log(policy.as_str(), |more| {
                tracing::warn!(
                    code = "state_foreign",
                    policy = policy.as_str(),
                    more,
                    "foreign value in Redis set aside"
                );
            }),
        }
    }
}
