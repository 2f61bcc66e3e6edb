//! Keys that are refused for a time, after a number of refusals.

use std::slice::from_ref;
use std::time::Duration;

use super::case::Case;
use super::rows::{MS, Row, S, admits, banned, denies, never, us};
use super::subject::{Checked, Stop, Subject, check, counter_of};
use crate::core::{Ban, Decision, Outcome, Quota};
use crate::store::Change::{Lift, Strike};
use crate::store::{BanCheck, Check, Mode, Settlement};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_key_is_banned_after_its_strikes_and_each_time_for_longer,
    a_ban_without_growth_is_always_as_long,
    a_refusal_during_a_ban_extends_it_only_if_that_is_asked_for,
    a_look_is_no_strike_and_is_refused_by_a_ban,
    a_cost_above_the_capacity_is_a_strike_and_no_wait_helps_it,
    a_refusal_by_another_policy_is_no_strike,
    a_banned_key_takes_nothing_from_other_policies,
    a_request_that_is_refused_twice_strikes_two_bans,
    in_shadow_mode_a_ban_refuses_nothing_and_takes_nothing,
    a_ban_is_only_looked_at_where_checks_do_not_count,
    a_lifted_key_starts_anew,
    a_strike_after_the_fact_counts,
    a_ban_that_was_made_shorter_ends_sooner,
    a_ban_holds_while_the_clock_steps_back_and_not_for_ever,
    buckets_and_slots_have_bans_too,
    two_checks_of_one_counter_are_two_strikes,
    a_ban_after_any_number_of_strikes_is_not_there_before,
];

const QUOTA: Quota = Quota::fixed_window(1, us(60 * S));

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// After three strikes within 60 s: 100 s, 200 s, and at most 300 s.
fn ban() -> Ban {
    Ban::new(3, seconds(60), seconds(100)).growing(2.0, seconds(300))
}

/// A unit at a second is admitted, after which the window has none.
#[track_caller]
fn fits(at: u64) -> Row {
    admits(at * S, 1, 0, (60 - at % 60) * S)
}

/// A unit at a second is refused until the window ends.
#[track_caller]
fn refused(at: u64) -> Row {
    let left = (60 - at % 60) * S;
    denies(at * S, 1, 0, left, left)
}

/// A unit at a second is refused by a ban, for so many more.
#[track_caller]
fn barred(at: u64, left: u64) -> Row {
    banned(at * S, 1, left * S)
}

/// Compares a table of the present key.
async fn run(on: &Subject, ban: Ban, rows: &[Row]) -> Checked {
    let rows: Vec<Row> = rows.iter().map(|row| row.ban(ban)).collect();
    on.run(QUOTA, &rows).await
}

/// Has a key banned at 3 s, for 100 s.
async fn begin(on: &Subject) -> Checked {
    on.next_key();
    run(on, ban(), &[fits(0), refused(1), refused(2), barred(3, 100)]).await
}

/// A check of 1 unit with a ban.
fn banning(key: &str) -> Check {
    check(key, QUOTA, 1).ban(BanCheck::new(ban()))
}

/// A check of another policy by the same key.
fn other(quota: Quota, cost: u64) -> Check {
    Check::new(counter_of("other", "ada", quota), cost)
}

/// Decides at a second, and compares which outcomes are banned.
async fn decide(on: &Subject, at: u64, checks: &[Check], expected: &[bool]) -> Result<Decision, Stop> {
    on.at(at * S)?;
    let decision = on.decide(checks).await?.decision;
    let found: Vec<bool> = decision.outcomes().iter().map(Outcome::is_banned).collect();
    on.equal(&*found, expected, || format!("banned at {at} s, of {checks:?}"));
    Ok(decision)
}

async fn a_key_is_banned_after_its_strikes_and_each_time_for_longer(on: &Subject) -> Checked {
    begin(on).await?;
    let end = [banned(60 * S, 0, 43 * S), banned(103 * S - MS, 1, MS), banned(103 * S - 1, 1, MS)];
    run(on, ban(), &[barred(50, 53), barred(60, 43)]).await?;
    run(on, ban(), &end).await?;
    run(on, ban(), &[fits(103), refused(104), refused(105), barred(106, 200)]).await?;
    run(on, ban(), &[fits(306), refused(307), refused(308), barred(309, 300), fits(609)]).await?;
    // The last ban was over for as long as the longest one.
    run(on, ban(), &[fits(909), refused(910), refused(911), barred(912, 100), fits(1_012)]).await?;
    // At 1,073 s there is a new window of strikes.
    run(on, ban(), &[refused(1_013), fits(1_072), refused(1_073), refused(1_073)]).await
}

async fn a_ban_without_growth_is_always_as_long(on: &Subject) -> Checked {
    on.next_key();
    let rows = [fits(0), refused(0).banned(), refused(29).banned(), refused(30).banned(), fits(60)];
    run(on, Ban::new(1, seconds(60), seconds(30)), &rows).await
}

async fn a_refusal_during_a_ban_extends_it_only_if_that_is_asked_for(on: &Subject) -> Checked {
    begin(on).await?;
    run(on, ban(), &[barred(50, 53), banned(99 * S, 0, 4 * S), fits(103)]).await?;
    begin(on).await?;
    // At 70 s it fits the quota.
    run(on, ban().extending(), &[barred(50, 100), barred(70, 100), banned(80 * S, 0, 90 * S)]).await?;
    run(on, ban().extending(), &[banned(170 * S - 1, 0, MS), fits(170)]).await
}

async fn a_look_is_no_strike_and_is_refused_by_a_ban(on: &Subject) -> Checked {
    on.next_key();
    let look = admits(S, 0, 0, 59 * S);
    run(on, ban(), &[fits(0), look, look, look, refused(1), refused(1), look, barred(1, 100)]).await?;
    run(on, ban(), &[banned(S, 0, 100 * S)]).await
}

async fn a_cost_above_the_capacity_is_a_strike_and_no_wait_helps_it(on: &Subject) -> Checked {
    on.next_key();
    let rows = [never(0, 2, 1, 0), never(0, 2, 1, 0), never(0, 2, 0, 100 * S).banned(), barred(0, 100)];
    run(on, ban(), &rows).await
}

async fn a_refusal_by_another_policy_is_no_strike(on: &Subject) -> Checked {
    for _ in 0..5 {
        let refused = decide(on, 0, &[banning("ada"), other(QUOTA, 2)], &[false, false]).await?;
        on.holds(!refused.is_allowed(), || format!("the other one refuses: {refused:?}"));
    }
    let admitted = decide(on, 0, &[banning("ada")], &[false]).await?;
    on.holds(admitted.is_allowed(), || format!("nothing was taken: {admitted:?}"));
    Ok(())
}

async fn a_banned_key_takes_nothing_from_other_policies(on: &Subject) -> Checked {
    let other = other(Quota::fixed_window(9, us(600 * S)), 1);
    for (at, remaining) in [(0, 8), (1, 8), (2, 8), (3, 8), (60, 8), (103, 7)] {
        let decision = decide(on, at, &[other.clone(), banning("ada")], &[false, (3..103).contains(&at)]).await?;
        let left = decision.outcomes().first().map(Outcome::remaining);
        on.equal(left, Some(remaining), || format!("remaining of the other at {at} s"));
    }
    Ok(())
}

async fn a_request_that_is_refused_twice_strikes_two_bans(on: &Subject) -> Checked {
    let both = [banning("ada"), other(QUOTA, 1).ban(BanCheck::new(Ban::new(2, seconds(60), seconds(10))))];
    // That the other key is banned does not keep the first one from its third strike.
    for (at, banned) in [(0, [false, false]), (1, [false, false]), (2, [false, true]), (3, [true, true])] {
        let decision = decide(on, at, &both, &banned).await?;
        on.equal(decision.is_banned(), banned[1], || format!("the decision at {at} s"));
    }
    Ok(())
}

async fn in_shadow_mode_a_ban_refuses_nothing_and_takes_nothing(on: &Subject) -> Checked {
    on.next_key();
    let rows = [fits(0), refused(1), refused(2), barred(3, 100), barred(60, 43)].map(Row::shadow);
    run(on, ban(), &rows).await?;
    run(on, ban(), &[fits(103)]).await?;
    let shadow = banning("bob").mode(Mode::Shadow);
    for at in 0..4 {
        let _ = decide(on, at, from_ref(&shadow), &[at == 3]).await?;
    }
    on.at(60 * S)?;
    let decided = on.decide(&[shadow, check("carol", QUOTA, 1)]).await?;
    on.holds(decided.decision.is_allowed(), || format!("it refuses nothing: {decided:?}"));
    let taken: Vec<u64> = decided.receipt.taken().iter().map(|taken| taken.units).collect();
    on.equal(&*taken, &[0, 1][..], || "what is taken");
    Ok(())
}

async fn a_ban_is_only_looked_at_where_checks_do_not_count(on: &Subject) -> Checked {
    let of = |counts| check("ada", QUOTA, 1).ban(BanCheck::new(ban()).counts(counts));
    for (at, counts) in (0..9).map(|at| (at, false)).chain((10..13).map(|at| (at, true))) {
        let _ = decide(on, at, &[of(counts)], &[at == 12]).await?;
    }
    decide(on, 60, &[of(false)], &[true]).await.map(drop)
}

async fn a_lifted_key_starts_anew(on: &Subject) -> Checked {
    begin(on).await?;
    on.at(60 * S)?;
    for found in [1, 0] {
        on.equal(on.adjust(&on.counter(QUOTA), Lift).await?.units, found, || "the bans that were lifted");
    }
    run(on, ban(), &[fits(60), refused(61), refused(62)]).await?;
    on.adjust_at(62 * S, QUOTA, Lift).await?;
    run(on, ban(), &[refused(63), refused(64), barred(65, 100)]).await?;
    on.reset(QUOTA).await?;
    run(on, ban(), &[barred(65, 100)]).await
}

async fn a_strike_after_the_fact_counts(on: &Subject) -> Checked {
    on.next_key();
    on.at(0)?;
    for strike in 1..=2 {
        let taken = on.decide(&[on.check(QUOTA, 0)]).await?;
        let applied = on.settle_all(taken, &[Settlement::new(0, Strike(ban()))]).await?;
        let found = applied.first().map(|one| (one.units, one.banned_for));
        on.equal(found, Some((1, None)), || format!("strike {strike}"));
    }
    for (units, began) in [(1, true), (0, false)] {
        let applied = on.adjust(&on.counter(QUOTA), Strike(ban())).await?;
        let found = (applied.units, applied.banned_for, applied.began);
        on.equal(found, (units, Some(seconds(100)), began), || format!("a strike that counts {units}"));
    }
    run(on, ban(), &[barred(0, 100), banned(0, 0, 100 * S), fits(100)]).await
}

async fn a_ban_that_was_made_shorter_ends_sooner(on: &Subject) -> Checked {
    begin(on).await?;
    run(on, Ban::new(3, seconds(60), seconds(70)), &[barred(72, 1), fits(73)]).await
}

async fn a_ban_holds_while_the_clock_steps_back_and_not_for_ever(on: &Subject) -> Checked {
    for at in 1_000..1_004 {
        let _ = decide(on, at, &[banning("ada")], &[at == 1_003]).await?;
    }
    let back = decide(on, 803, &[banning("ada")], &[true]).await?;
    on.equal(back.retry_after(), Some(seconds(300)), || "the time to retry");
    decide(on, 603, &[banning("ada")], &[false]).await.map(drop)
}

async fn buckets_and_slots_have_bans_too(on: &Subject) -> Checked {
    for quota in [
        Quota::token_bucket(1, us(60 * S)),
        Quota::sliding_log(1, us(60 * S)),
        Quota::sliding_window(1, us(60 * S)),
        Quota::leaky_bucket(1, us(60 * S)),
        Quota::concurrency(1),
    ] {
        on.next_key();
        let one = on.check(quota, 1).ban(BanCheck::new(ban()));
        for at in 0..4 {
            let decision = decide(on, at, from_ref(&one), &[at == 3]).await?;
            let is_guess = quota.facts().held && (1..3).contains(&at);
            on.equal(decision.retry_is_guess(), is_guess, || format!("a guess of {quota} at {at} s"));
        }
        let banned = decide(on, 90, from_ref(&one), &[true]).await?;
        on.equal(banned.retry_after(), Some(seconds(13)), || format!("the time to retry of {quota}"));
        let admitted = decide(on, 103, &[one], &[false]).await?;
        on.holds(admitted.is_allowed(), || format!("the ban of {quota} is over: {admitted:?}"));
    }
    Ok(())
}

async fn two_checks_of_one_counter_are_two_strikes(on: &Subject) -> Checked {
    let both = [banning("ada"), banning("ada")];
    // The first fits, and the second does not fit beside it.
    for at in 0..2 {
        let _ = decide(on, at, &both, &[false, false]).await?;
    }
    let admitted = decide(on, 2, &both[..1], &[false]).await?;
    on.holds(admitted.is_allowed(), || format!("nothing was taken: {admitted:?}"));
    decide(on, 3, &both, &[true, true]).await.map(drop)
}

/// Where numbers of strikes may be kept in 16 bits, too.
async fn a_ban_after_any_number_of_strikes_is_not_there_before(on: &Subject) -> Checked {
    for after in [65_534, 65_535, 65_536, 100_000] {
        on.next_key();
        let rows = [fits(0), refused(1), admits(2 * S, 0, 0, 58 * S)];
        run(on, Ban::new(after, seconds(60), seconds(100)), &rows).await?;
    }
    Ok(())
}
