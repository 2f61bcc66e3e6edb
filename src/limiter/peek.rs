//! A look at the checks of a request that need no lookup, before any lookup is made.
//!
//! A flood of refused requests must not become a flood of lookups. So the checks whose keys and quotas are known are
//! looked at first, which takes nothing; lookups are made only for a request that they would admit. The look is built
//! so that its wait is the wait of the check itself, and deny caches can cache it as a refusal.

use smallvec::SmallVec;

use crate::core::{Decision, Error, Outcome, Source};
use crate::store::{Ask, AskMode, Check, Deadline, Decided, FailureStore, Mode, Receipt, Store};
use crate::telemetry::{Telemetry, Timer};

/// The looks of one request.
type Looks = SmallVec<[Check; 2]>;

/// Returns the refusal of a request by its known checks, or the error if they cannot be decided; `None` if they fit.
///
/// Takes nothing, and calls the store at most once.
pub(super) async fn refusal(
    store: &FailureStore,
    telemetry: &Telemetry,
    checks: &[Check],
    deadline: Deadline,
) -> Option<(Timer, Result<Decided, Error>)> {
    if !checks.iter().any(may_refuse) {
        return None;
    }
    let timer = telemetry.start();
    let (looks, ask): (Looks, _) = (checks.iter().map(look).collect(), Ask { deadline, mode: AskMode::Cached });
    let Decided { decision, receipt } = match store.decide(&looks, ask).wait().await {
        Ok(looked) => looked,
        Err(error) => return Some((timer, Err(error))),
    };
    let nothing = Receipt::empty(receipt.store());
    let outcomes = checks.iter().zip(decision.outcomes()).map(|(check, look)| match decision.source() {
        // It is the outcome of the unit that the look stands for.
        Source::DenyCache if check.cost > 0 => look.clone(),
        _ => as_decided(check, look),
    });
    let decision = Decision::new(outcomes, decision.source());
    (!decision.is_allowed()).then(|| (timer, Ok(Decided::new(decision, nothing))))
}

/// Returns whether a check can refuse the request.
fn may_refuse(check: &Check) -> bool {
    check.mode == Mode::Enforce && (check.cost > 0 || check.is_only_for_ban())
}

/// Returns a look that has something remaining exactly where the check fits: all units of the cost but one become
/// floor. The wait of such a look is that of the check, too.
fn look(check: &Check) -> Check {
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    let mut look = check.clone().cost(0).floor(check.floor.saturating_add(more));
    // A refusal by the look is one of the request. In shadow mode the decision follows, which strikes by itself.
    if let Some(ban) = look.ban.as_mut() {
        ban.tests = may_refuse(check) && check.cost > 0;
    }
    look
}

/// Returns whether the check is one of a queue, which is decided by its first free slot, whatever the cost.
fn by_slots(check: &Check) -> bool {
    check.counter.quota().decides_by_floor(check.cost, check.floor)
}

/// Returns whether the check fits, by its look.
fn fits(check: &Check, look: &Outcome) -> bool {
    !look.is_banned() && (check.cost == 0 || look.remaining() > 0)
}

/// Returns the outcome of a check in a refused request, from its look.
fn as_decided(check: &Check, look: &Outcome) -> Outcome {
    if look.is_banned() {
        return look.clone();
    }
    let (reset, minutes) = (look.reset_after(), look.window_minutes());
    if !fits(check, look) {
        // For a cost above 1 the look does not contain how many units are left.
        return Outcome::denied(check, 0, look.wait()).resets_after(reset).with_window_minutes(minutes);
    }
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    Outcome::allowed(check, look.remaining().saturating_add(more)).resets_after(reset).with_window_minutes(minutes)
}
