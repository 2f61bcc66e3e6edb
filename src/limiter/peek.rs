//! Whether a request is refused by what is known of it: looked at before anything is looked up.

use smallvec::SmallVec;

use crate::metrics::Timer;
use crate::store::{Check, Deadline, Decided, FailureStore, Mode, Receipt, SharedStore};
use crate::{Decision, Error, Outcome, Store};

type Looks = SmallVec<[Check; 2]>;

/// The refusal of a request by some of its checks, if it is one, or that none can be decided.
/// Takes nothing, and asks the store at most once.
pub(super) async fn refusal(
    store: &FailureStore<SharedStore>,
    checks: &[Check],
    deadline: Deadline,
) -> Option<(Timer, Result<Decided, Error>)> {
    if !checks.iter().any(may_refuse) {
        return None;
    }
    let timer = Timer::start();
    if let Some(refused) = store.recall(checks) {
        return Some((timer, Ok(refused)));
    }
    let looks: Looks = checks.iter().map(look).collect();
    let Decided { decision, receipt } = match store.decide(&looks, deadline).wait().await {
        Ok(looked) => looked,
        Err(error) => return Some((timer, Err(error))),
    };
    let nothing = Receipt::empty(receipt.store());
    store.settle(receipt, &[]);
    let refused = checks.iter().zip(decision.outcomes()).any(|(check, look)| may_refuse(check) && !fits(check, look));
    refused.then(|| {
        let outcomes = checks.iter().zip(decision.outcomes()).map(|(check, look)| as_decided(check, look));
        let decision = Decision::new(outcomes, decision.source());
        (timer, Ok(Decided { decision, receipt: nothing }))
    })
}

fn may_refuse(check: &Check) -> bool {
    check.mode == Mode::Enforce && check.cost > 0
}

/// A look that finds something left where the check fits: all units of its cost but one are added to
/// the floor. The wait of such a look is that of the check, too.
fn look(check: &Check) -> Check {
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    Check { cost: 0, floor: check.floor.saturating_add(more), ..check.clone() }
}

/// A queue admits by its first free slot, however many are taken from there.
fn by_slots(check: &Check) -> bool {
    check.counter.quota.decides_by_floor(check.cost, check.floor)
}

fn fits(check: &Check, look: &Outcome) -> bool {
    check.cost == 0 || look.remaining() > 0
}

/// The outcome of a check in a request that is refused.
fn as_decided(check: &Check, look: &Outcome) -> Outcome {
    let reset = look.reset_after();
    if !fits(check, look) {
        // How many of a larger cost's units are left, the look does not say.
        return Outcome::denied(check, 0, look.wait()).resets_after(reset);
    }
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    Outcome::allowed(check, look.remaining().saturating_add(more)).resets_after(reset)
}
