//! Checks that are decided and counted, and refuse nobody.

use super::case::Case;
use super::rows::{S, admits, denies, never, us};
use super::subject::{Checked, Subject, check};
use crate::core::{Outcome, Quota};
use crate::store::{Check, Mode};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_shadow_check_returns_what_it_would_refuse,
    a_shadow_check_that_does_not_fit_refuses_nothing_and_takes_nothing,
    a_shadow_check_takes_nothing_when_another_refuses,
    a_request_of_shadows_only_is_admitted_and_nothing_binds,
];

fn shadow(key: &str, quota: Quota, cost: u64) -> Check {
    check(key, quota, cost).mode(Mode::Shadow)
}

async fn a_shadow_check_returns_what_it_would_refuse(on: &Subject) -> Checked {
    let rows = [
        admits(0, 2, 1, 60 * S).shadow(),
        denies(10 * S, 2, 1, 50 * S, 50 * S).shadow(),
        never(10 * S, 4, 1, 50 * S).shadow(),
        admits(10 * S, 1, 0, 50 * S).shadow(),
        denies(10 * S, 1, 0, 50 * S, 50 * S),
    ];
    on.table(Quota::fixed_window(3, us(60 * S)), &rows).await
}

async fn a_shadow_check_that_does_not_fit_refuses_nothing_and_takes_nothing(on: &Subject) -> Checked {
    let (small, large) = (Quota::per_minute(2), Quota::fixed_window(9, us(60 * S)));
    on.at(0)?;
    let decided = on.decide(&[shadow("a", small, 3), check("b", large, 1)]).await?;
    on.holds(decided.decision.is_allowed(), || format!("it is admitted: {decided:?}"));
    on.equal(decided.decision.violated().count(), 0, || "violated");
    on.equal(decided.decision.binding().map(Outcome::quota), Some(&large), || "what binds");
    let taken: Vec<u64> = decided.receipt.taken().iter().map(|taken| taken.units).collect();
    on.equal(&*taken, &[0, 1][..], || "what is taken");
    let left = on.decide(&[check("a", small, 0), check("b", large, 0)]).await?.decision;
    let left: Vec<u64> = left.outcomes().iter().map(Outcome::remaining).collect();
    on.equal(&*left, &[2, 8][..], || "remaining");
    Ok(())
}

async fn a_shadow_check_takes_nothing_when_another_refuses(on: &Subject) -> Checked {
    let quota = Quota::per_minute(5);
    on.at(0)?;
    let refused = on.decide(&[shadow("a", quota, 1), check("b", quota, 6)]).await?.decision;
    on.holds(!refused.is_allowed(), || format!("it is refused: {refused:?}"));
    let left = on.decide(&[check("a", quota, 0)]).await?.decision;
    on.equal(left.outcomes().first().map(Outcome::remaining), Some(5), || "remaining");
    Ok(())
}

async fn a_request_of_shadows_only_is_admitted_and_nothing_binds(on: &Subject) -> Checked {
    on.at(0)?;
    let decision = on.decide(&[shadow("a", Quota::per_minute(1), 2)]).await?.decision;
    let fits = decision.outcomes().iter().any(Outcome::is_allowed);
    on.holds(decision.is_allowed() && !fits, || format!("it is admitted, and does not fit: {decision:?}"));
    on.holds(decision.binding().is_none(), || format!("nothing binds: {decision:?}"));
    on.equal(decision.retry_after(), None, || "the time to retry");
    Ok(())
}
