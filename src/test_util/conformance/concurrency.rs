//! The answers of concurrency, where the time to retry is a guess of 1 s.

use super::case::Case;
use super::rows::{MS, S, admits, denies, never, us};
use super::subject::{Checked, Stop, Subject, check, counter_of};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund, Renew};
use crate::store::{Applied, Change, Check, Decided, Receipt, Settlement};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    as_many_slots_as_the_limit_are_held_at_once,
    a_concurrency_answers_every_cost,
    a_concurrency_leaves_its_floor,
    slots_in_shadow_mode_are_held_if_they_fit,
    slots_that_are_not_renewed_end_with_their_cohort_to_the_tick,
    refusals_and_looks_hold_nothing_and_keep_nothing_alive,
    a_long_life_of_slots_is_counted_in_milliseconds,
    the_largest_limit_of_a_concurrency_is_counted_to_the_slot,
    slots_are_not_freed_by_a_clock_that_steps_back,
    checks_of_a_request_that_share_slots_add_up,
    a_request_that_another_policy_refuses_holds_no_slot,
    a_release_frees_slots_of_its_own_cohort_and_each_of_them_once,
    a_release_of_expired_slots_frees_nothing,
    a_release_of_slots_from_before_a_reset_frees_nothing,
    a_renewal_moves_slots_to_now,
    a_renewal_takes_lost_slots_anew_beyond_the_limit,
    a_limit_that_changes_keeps_the_slots_and_another_life_starts_anew,
    slots_are_charged_and_released_by_hand,
    a_renewal_of_other_units_changes_nothing,
];

/// Five slots that live 40 s; a cohort takes slots for 5 s, and counts for 45 s.
const FIVE: Quota = Quota::concurrency(5).slot_life(us(40 * S));

async fn as_many_slots_as_the_limit_are_held_at_once(on: &Subject) -> Checked {
    let rows = [
        admits(0, 2, 3, 45 * S),
        admits(0, 3, 0, 45 * S),
        denies(0, 1, 0, S, 45 * S),
        denies(0, 5, 0, S, 45 * S),
        admits(0, 0, 0, 45 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_concurrency_answers_every_cost(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 5, 0),
        never(0, 6, 5, 0),
        never(0, u64::MAX, 5, 0),
        admits(0, 5, 0, 45 * S),
        admits(S, 0, 0, 44 * S),
        denies(S, 5, 0, S, 44 * S),
        never(S, 6, 0, 44 * S),
        admits(45 * S, 2, 3, 45 * S),
        denies(45 * S, 4, 3, S, 45 * S),
        admits(45 * S, 3, 0, 45 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_concurrency_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 7, 6, 0).floor(4),
        admits(0, 5, 1, 45 * S).floor(4),
        denies(0, 2, 1, S, 45 * S).floor(4),
        admits(0, 1, 0, 45 * S).floor(4),
        denies(0, 1, 0, S, 45 * S).floor(4),
        never(0, 1, 0, 45 * S).floor(10),
        never(0, 1, 0, 45 * S).floor(u64::MAX),
        admits(0, 0, 0, 45 * S).floor(4),
        admits(0, 4, 0, 45 * S),
    ];
    on.table(Quota::concurrency(10).slot_life(us(40 * S)), &rows).await
}

async fn slots_in_shadow_mode_are_held_if_they_fit(on: &Subject) -> Checked {
    let rows = [admits(0, 4, 1, 45 * S).shadow(), denies(0, 2, 1, S, 45 * S).shadow(), admits(0, 1, 0, 45 * S)];
    on.table(FIVE, &rows).await
}

async fn slots_that_are_not_renewed_end_with_their_cohort_to_the_tick(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 4, 45 * S),
        admits(5 * S - 1, 1, 3, 40 * S + 1),
        admits(5 * S, 1, 2, 45 * S),
        denies(5 * S, 3, 2, S, 45 * S),
        denies(45 * S - 1, 3, 2, S, 5 * S + 1),
        admits(45 * S, 0, 4, 5 * S),
        admits(45 * S, 3, 1, 45 * S),
        admits(50 * S - 1, 0, 1, 40 * S + 1),
        admits(50 * S, 0, 2, 40 * S),
        admits(90 * S, 5, 0, 45 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn refusals_and_looks_hold_nothing_and_keep_nothing_alive(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 5, 0),
        admits(0, 5, 0, 45 * S),
        denies(4 * S, 1, 0, S, 41 * S),
        admits(20 * S, 0, 0, 25 * S),
        denies(45 * S - 1, 1, 0, S, 1),
        admits(45 * S, 5, 0, 45 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_long_life_of_slots_is_counted_in_milliseconds(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 2, 90 * S),
        admits(10 * S - 1, 1, 1, 80 * S + MS),
        admits(10 * S, 1, 0, 90 * S),
        denies(90 * S - 1, 1, 0, S, 10 * S + MS),
        admits(90 * S, 2, 0, 90 * S),
    ];
    on.table(Quota::concurrency(3).slot_life(us(80 * S)), &rows).await
}

async fn the_largest_limit_of_a_concurrency_is_counted_to_the_slot(on: &Subject) -> Checked {
    let most = 1_000_000;
    let rows = [
        admits(0, most - 1, 1, 33_750 * MS),
        denies(0, 2, 1, S, 33_750 * MS),
        admits(0, 1, 0, 33_750 * MS),
        never(0, most + 1, 0, 33_750 * MS),
    ];
    on.table(Quota::concurrency(most), &rows).await
}

async fn slots_are_not_freed_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(100 * S, 2, 3, 45 * S),
        admits(70 * S, 0, 3, 75 * S),
        admits(60 * S, 3, 0, 85 * S),
        denies(60 * S, 1, 0, S, 85 * S),
        denies(144 * S, 1, 0, S, S),
        // Further ahead than a life is long, they count no more.
        admits(60 * S - 1, 1, 4, 45 * S),
        admits(60 * S, 1, 3, 45 * S - 1),
        admits(1_000 * S, 5, 0, 45 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn checks_of_a_request_that_share_slots_add_up(on: &Subject) -> Checked {
    on.at(0)?;
    let two = || on.check(FIVE, 2);
    let decided = on.decide(&[two(), two()]).await?;
    on.holds(decided.decision.is_allowed(), || format!("4 of 5 are admitted: {decided:?}"));
    on.remaining(0, FIVE, 1).await?;
    on.settle_all(decided, &[Settlement::new(0, Refund(2)), Settlement::new(1, Refund(1))]).await?;
    on.remaining(0, FIVE, 4).await?;
    let refused = on.decide(&[two(), two(), two()]).await?;
    on.holds(!refused.decision.is_allowed(), || format!("6 of 4 are refused: {refused:?}"));
    on.remaining(0, FIVE, 4).await
}

async fn a_request_that_another_policy_refuses_holds_no_slot(on: &Subject) -> Checked {
    on.at(0)?;
    let full = Check::new(counter_of("full", "ada", Quota::fixed_window(1, us(60 * S))), 2);
    for checks in [[check("ada", FIVE, 3), full.clone()], [full, check("ada", FIVE, 3)]] {
        let refused = on.decide(&checks).await?;
        on.holds(!refused.decision.is_allowed(), || format!("{refused:?}"));
        let left = on.decide(&[check("ada", FIVE, 0)]).await?.decision;
        on.equal(left.binding().map(crate::core::Outcome::remaining), Some(5), || "remaining");
    }
    Ok(())
}

async fn a_release_frees_slots_of_its_own_cohort_and_each_of_them_once(on: &Subject) -> Checked {
    let first = on.take(0, FIVE, 2).await?;
    let second = on.take(5 * S, FIVE, 3).await?;
    for (slots, freed, left) in [(1, 1, 1), (2, 1, 2), (2, 0, 2)] {
        changes(on, &first, Refund(slots), freed).await?;
        on.remaining(6 * S, FIVE, left).await?;
    }
    on.run(FIVE, &[admits(6 * S, 2, 0, 44 * S)]).await?;
    changes(on, &first, Refund(2), 0).await?;
    for (freed, left) in [(3, 3), (2, 5), (0, 5)] {
        changes(on, &second, Refund(3), freed).await?;
        on.remaining(6 * S, FIVE, left).await?;
    }
    on.run(FIVE, &[admits(6 * S, 0, 5, 0), admits(6 * S, 5, 0, 45 * S)]).await
}

async fn a_release_of_expired_slots_frees_nothing(on: &Subject) -> Checked {
    let expired = on.take(0, FIVE, 2).await?;
    let _ = on.take(44 * S, FIVE, 1).await?;
    on.remaining(45 * S - 1, FIVE, 2).await?;
    on.remaining(45 * S, FIVE, 4).await?;
    changes(on, &expired, Refund(2), 0).await?;
    on.remaining(45 * S, FIVE, 4).await
}

async fn a_release_of_slots_from_before_a_reset_frees_nothing(on: &Subject) -> Checked {
    let forgotten = on.take(0, FIVE, 2).await?;
    on.reset(FIVE).await?;
    on.remaining(0, FIVE, 5).await?;
    let _ = on.take(1, FIVE, 2).await?;
    changes(on, &forgotten, Refund(2), 0).await?;
    on.remaining(1, FIVE, 3).await
}

async fn a_renewal_moves_slots_to_now(on: &Subject) -> Checked {
    let taken = on.take(0, FIVE, 3).await?;
    let _ = on.take(0, FIVE, 1).await?;
    on.at(15 * S)?;
    let renewed = changes(on, &taken, Renew(9), 3).await?;
    on.run(FIVE, &[admits(15 * S, 0, 1, 45 * S), admits(45 * S - 1, 0, 1, 15 * S + 1)]).await?;
    on.remaining(45 * S, FIVE, 2).await?;
    let again = changes(on, &stamped(&taken, &renewed), Renew(2), 2).await?;
    on.run(FIVE, &[admits(60 * S - 1, 0, 2, 30 * S + 1), admits(60 * S, 0, 3, 30 * S)]).await?;
    changes(on, &taken, Refund(3), 0).await?;
    changes(on, &stamped(&taken, &again), Refund(3), 2).await?;
    on.run(FIVE, &[admits(60 * S, 0, 5, 0)]).await
}

async fn a_renewal_takes_lost_slots_anew_beyond_the_limit(on: &Subject) -> Checked {
    let lost = on.take(0, FIVE, 4).await?;
    on.reset(FIVE).await?;
    let others = on.take(S, FIVE, 4).await?;
    on.at(10 * S)?;
    let renewed = changes(on, &lost, Renew(4), 0).await?;
    on.run(FIVE, &[denies(10 * S, 1, 0, S, 45 * S)]).await?;
    changes(on, &others, Refund(4), 4).await?;
    on.remaining(10 * S, FIVE, 1).await?;
    // A smaller limit renews them as well.
    let one = Quota::concurrency(1).slot_life(FIVE.window());
    on.at(20 * S)?;
    let kept = stamped(&lost, &renewed);
    let fewer = kept.receipt.taken().iter().map(|taken| {
        let mut taken = taken.clone();
        taken.counter = taken.counter.with_quota(one);
        taken
    });
    let fewer = Decided::new(kept.decision.clone(), Receipt::new(kept.receipt.store(), fewer));
    changes(on, &fewer, Renew(4), 4).await?;
    on.run(FIVE, &[admits(20 * S, 0, 1, 45 * S)]).await
}

async fn a_limit_that_changes_keeps_the_slots_and_another_life_starts_anew(on: &Subject) -> Checked {
    let taken = on.take(0, FIVE, 4).await?;
    let of = |limit| Quota::concurrency(limit).slot_life(FIVE.window());
    on.run(of(2), &[denies(0, 1, 0, S, 45 * S), never(0, 3, 0, 45 * S)]).await?;
    on.run(of(9), &[admits(0, 3, 2, 45 * S)]).await?;
    on.run(FIVE.hold_at_most(us(7 * S)), &[denies(0, 1, 0, S, 45 * S)]).await?;
    on.run(FIVE.slot_life(us(32 * S)), &[admits(0, 5, 0, 36 * S)]).await?;
    changes(on, &taken, Refund(4), 4).await?;
    on.run(FIVE, &[admits(0, 2, 0, 45 * S)]).await
}

async fn slots_are_charged_and_released_by_hand(on: &Subject) -> Checked {
    on.at(0)?;
    let counter = on.counter(FIVE);
    for (change, units) in [(Charge(3), 3), (Charge(9), 7), (Charge(1), 0), (Refund(6), 6), (Renew(9), 4)] {
        let applied = on.adjust(&counter, change).await?;
        on.equal(applied.units, units, || format!("{change:?} by hand"));
    }
    on.adjust(&counter, Refund(8)).await?;
    on.run(FIVE, &[denies(0, 5, 4, S, 45 * S), admits(0, 4, 0, 45 * S)]).await
}

async fn a_renewal_of_other_units_changes_nothing(on: &Subject) -> Checked {
    for quota in [Quota::fixed_window(5, us(60 * S)), Quota::token_bucket(5, us(50 * S))] {
        let taken = on.take(0, quota, 3).await?;
        changes(on, &taken, Renew(3), 0).await?;
        let applied = on.adjust(&on.counter(quota), Renew(3)).await?;
        on.equal(applied.units, 0, || format!("{quota} renewed by hand"));
        on.remaining(0, quota, 2).await?;
    }
    Ok(())
}

/// Changes what the only check of a request took, which may be done again, and compares to how many units it comes.
async fn changes(on: &Subject, decided: &Decided, change: Change, units: u64) -> Result<Applied, Stop> {
    let receipt = Receipt::new(decided.receipt.store(), decided.receipt.taken().iter().cloned());
    let again = Decided::new(decided.decision.clone(), receipt);
    let applied = on.settle_all(again, &[Settlement::new(0, change)]).await?;
    let Some(one) = applied.into_iter().next() else { return Err(Stop::Failed("a settlement without result".into())) };
    on.equal(one.units, units, || format!("{change:?} of {:?}", decided.receipt));
    Ok(one)
}

/// The same request, whose units have the stamp of a change.
fn stamped(decided: &Decided, applied: &Applied) -> Decided {
    let taken = decided.receipt.taken().iter().map(|taken| taken.clone().stamp(applied.stamp));
    Decided::new(decided.decision.clone(), Receipt::new(decided.receipt.store(), taken))
}
