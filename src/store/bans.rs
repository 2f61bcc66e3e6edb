//! Bans, expressed as checks and changes, for stores that use the arithmetic of this crate.
//!
//! A ban is a counter of strikes, with its own algorithm. Its check precedes the check whose key it bans, and has the
//! mode of that check. Its cost is 1 if a denial of that check is a strike. Strikes are counted after all checks are
//! decided, even if the request is denied.

use std::borrow::Cow;
use std::time::Duration;

use super::{BanCheck, Change, ChangeResult, Check, ReceiptItem, Settles};
use crate::core::algorithm::{Adjusted, Adjustment, CounterState, NEVER, Step};
use crate::core::{Ban, Outcome, Quota};

/// Adds the checks of bans. Idempotent.
pub(super) fn with_bans(checks: &[Check]) -> Cow<'_, [Check]> {
    if size(checks) == checks.len() || checks.iter().any(|check| check.counter.is_ban()) {
        return Cow::Borrowed(checks);
    }
    let ban_of = |check: &Check| {
        let counter = check.counter.ban_counter(check.ban.as_deref()?);
        let (cost, mode) = (check.strikes().into(), check.mode);
        Some(Check {
            counter,
            cost,
            floor: 0,
            mode,
            settles: Settles::AsTaken,
            ban: None,
            overridden: check.overridden,
        })
    };
    checks.iter().flat_map(|check| ban_of(check).into_iter().chain([check.clone()])).collect()
}

pub(super) fn size(checks: &[Check]) -> usize {
    checks.len() + checks.iter().filter(|check| check.ban.is_some()).count()
}

pub(super) fn changed(taken: &ReceiptItem, change: Change) -> (Cow<'_, ReceiptItem>, Change) {
    const ANY: Ban = Ban::new(1, Duration::from_millis(1), Duration::from_millis(1));
    let (ban, change) = match change {
        Change::Strike(ban) => (ban, Change::Charge(1)),
        Change::Lift => (ANY, Change::Reset),
        _ => return (Cow::Borrowed(taken), change),
    };
    (Cow::Owned(ReceiptItem::new(taken.counter.ban_counter(&BanCheck::new(ban)), 0, taken.stamp)), change)
}

pub(super) fn ban_before<'a>(checks: &[Check], steps: &'a [Step], index: usize) -> Option<&'a Step> {
    let before = index.checked_sub(1)?;
    checks[before].counter.is_ban().then(|| &steps[before])
}

/// Counts strikes in order: checks that do not fit, and checks of banned keys, which may extend the ban. For a peek,
/// one unit counts.
pub(super) fn strike<'a>(
    checks: &[Check],
    steps: &mut [Step],
    state: impl Fn(usize) -> Option<Cow<'a, CounterState>>,
    now: impl Fn(&Quota) -> u64,
) {
    for (index, two) in checks.windows(2).enumerate() {
        let [Check { counter: ban, cost: 1, .. }, check] = two else { continue };
        if !ban.is_ban() {
            continue;
        }
        let quota = check.counter.quota();
        let one_fits = || quota.decide(state(index + 1).as_deref(), now(quota), 1, check.floor).fits;
        let fits = if check.cost > 0 { steps[index + 1].fits } else { one_fits() };
        if !fits || !steps[index].fits {
            let kept = state(index);
            let mut struck = (0..index).rev().filter(|before| checks[*before].counter.shares_state(ban));
            let struck = struck.find_map(|before| steps[before].state.as_ref());
            let after = after_strike(ban.quota(), struck.or(kept.as_deref()), now(ban.quota()));
            steps[index] = Step { found: steps[index].found, ..after };
        }
    }
}

/// The step's delay is the length of a ban that began.
fn after_strike(ban: &Quota, before: Option<&CounterState>, now: u64) -> Step {
    let Adjusted { units, state } = ban.adjust(before, now, Adjustment::new(Change::Charge(1), NEVER));
    let Some((state, reset)) = state else { return ban.decide(before, now, 0, 0) };
    let look = ban.decide(Some(&state), now, 0, 0);
    Step { state: Some(state), reset, delay: look.wait * units, ..look }
}

pub(super) fn noted(outcome: Outcome, ban: &Step) -> Outcome {
    let outcome = if ban.fits { outcome } else { outcome.banned(Duration::from_millis(ban.wait)) };
    outcome.with_ban(ban.delay > 0)
}

/// Not to be called under a lock, because the log's writer may call the same store.
pub(super) fn log(checks: &[Check], steps: &[Step]) {
    for (check, step) in checks.iter().zip(steps) {
        step.found.warn(check.counter.policy());
    }
}

pub(super) fn applied_strike(ban: &ReceiptItem, units: u64, step: &Step) -> ChangeResult {
    let applied = ChangeResult::new(units, ban.stamp);
    if step.fits { applied } else { applied.banned(Duration::from_millis(step.wait)) }
}
