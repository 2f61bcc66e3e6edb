//! Keys that are refused for a time, after a number of refusals.

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

/// Compares a table of the present key.
async fn run(on: &Subject, ban: Ban, rows: &[Row]) -> Checked {
    let rows: Vec<Row> = rows.iter().map(|row| row.ban(ban)).collect();
    on.run(QUOTA, &rows).await
}

/// Has a key banned at 3 s, for 100 s.
async fn begin(on: &Subject) -> Checked {
    on.next_key();
    let rows = [
        admits(0, 1, 0, 60 * S),
        denies(S, 1, 0, 59 * S, 59 * S),
        denies(2 * S, 1, 0, 58 * S, 58 * S),
        banned(3 * S, 1, 100 * S),
    ];
    run(on, ban(), &rows).await
}

/// A check of 1 unit with a ban.
fn banning(key: &str) -> Check {
    check(key, QUOTA, 1).ban(BanCheck::new(ban()))
}

async fn decide(on: &Subject, now: u64, checks: &[Check]) -> Result<Decision, Stop> {
    on.at(now)?;
    Ok(on.decide(checks).await?.decision)
}

/// Compares which outcomes are banned.
fn are_banned(on: &Subject, decision: &Decision, expected: &[bool], what: &str) {
    let found: Vec<bool> = decision.outcomes().iter().map(Outcome::is_banned).collect();
    on.equal(&*found, expected, || format!("banned, {what}"));
}

async fn a_key_is_banned_after_its_strikes_and_each_time_for_longer(on: &Subject) -> Checked {
    begin(on).await?;
    let rows = [
        banned(50 * S, 1, 53 * S),
        banned(60 * S, 1, 43 * S),
        banned(60 * S, 0, 43 * S),
        banned(103 * S - MS, 1, MS),
        banned(103 * S - 1, 1, MS),
        admits(103 * S, 1, 0, 17 * S),
        denies(104 * S, 1, 0, 16 * S, 16 * S),
        denies(105 * S, 1, 0, 15 * S, 15 * S),
        banned(106 * S, 1, 200 * S),
        admits(306 * S, 1, 0, 54 * S),
        denies(307 * S, 1, 0, 53 * S, 53 * S),
        denies(308 * S, 1, 0, 52 * S, 52 * S),
        banned(309 * S, 1, 300 * S),
        admits(609 * S, 1, 0, 51 * S),
        // The last ban was over for as long as the longest one.
        admits(909 * S, 1, 0, 51 * S),
        denies(910 * S, 1, 0, 50 * S, 50 * S),
        denies(911 * S, 1, 0, 49 * S, 49 * S),
        banned(912 * S, 1, 100 * S),
        admits(1_012 * S, 1, 0, 8 * S),
        denies(1_013 * S, 1, 0, 7 * S, 7 * S),
        admits(1_072 * S, 1, 0, 8 * S),
        // A new window of strikes.
        denies(1_073 * S, 1, 0, 7 * S, 7 * S),
        denies(1_073 * S + MS, 1, 0, 7 * S - MS, 7 * S - MS),
    ];
    run(on, ban(), &rows).await
}

async fn a_ban_without_growth_is_always_as_long(on: &Subject) -> Checked {
    on.next_key();
    let ban = Ban::new(1, seconds(60), seconds(30));
    let rows = [
        admits(0, 1, 0, 60 * S),
        denies(0, 1, 0, 60 * S, 60 * S).banned(),
        denies(29 * S, 1, 0, 31 * S, 31 * S).banned(),
        denies(30 * S, 1, 0, 30 * S, 30 * S).banned(),
        admits(60 * S, 1, 0, 60 * S),
    ];
    run(on, ban, &rows).await
}

async fn a_refusal_during_a_ban_extends_it_only_if_that_is_asked_for(on: &Subject) -> Checked {
    begin(on).await?;
    let rows = [banned(50 * S, 1, 53 * S), banned(99 * S, 0, 4 * S), admits(103 * S, 1, 0, 17 * S)];
    run(on, ban(), &rows).await?;
    begin(on).await?;
    let rows = [
        banned(50 * S, 1, 100 * S),
        // It fits the quota by now.
        banned(70 * S, 1, 100 * S),
        banned(80 * S, 0, 90 * S),
        banned(170 * S - 1, 0, MS),
        admits(170 * S, 1, 0, 10 * S),
    ];
    run(on, ban().extending(), &rows).await
}

async fn a_look_is_no_strike_and_is_refused_by_a_ban(on: &Subject) -> Checked {
    on.next_key();
    let looks = [admits(0, 1, 0, 60 * S), admits(S, 0, 0, 59 * S), admits(S, 0, 0, 59 * S), admits(S, 0, 0, 59 * S)];
    run(on, ban(), &looks).await?;
    let rows = [
        denies(S, 1, 0, 59 * S, 59 * S),
        denies(S, 1, 0, 59 * S, 59 * S),
        admits(S, 0, 0, 59 * S),
        banned(S, 1, 100 * S),
        banned(S, 0, 100 * S),
    ];
    run(on, ban(), &rows).await
}

async fn a_cost_above_the_capacity_is_a_strike_and_no_wait_helps_it(on: &Subject) -> Checked {
    on.next_key();
    let rows = [never(0, 2, 1, 0), never(0, 2, 1, 0), never(0, 2, 0, 100 * S).banned(), banned(0, 1, 100 * S)];
    run(on, ban(), &rows).await
}

async fn a_refusal_by_another_policy_is_no_strike(on: &Subject) -> Checked {
    let other = Check::new(counter_of("other", "ada", QUOTA), 2);
    for _ in 0..5 {
        let refused = decide(on, 0, &[banning("ada"), other.clone()]).await?;
        on.holds(!refused.is_allowed() && !refused.is_banned(), || format!("the other one refuses: {refused:?}"));
    }
    let admitted = decide(on, 0, &[banning("ada")]).await?;
    on.holds(admitted.is_allowed(), || format!("nothing was taken: {admitted:?}"));
    Ok(())
}

async fn a_banned_key_takes_nothing_from_other_policies(on: &Subject) -> Checked {
    let other = |cost| Check::new(counter_of("other", "ada", Quota::fixed_window(9, us(600 * S))), cost);
    for (now, remaining) in [(0, 8), (1, 8), (2, 8), (3, 8), (60, 8), (103, 7)] {
        let decision = decide(on, now * S, &[other(1), banning("ada")]).await?;
        let left = decision.outcomes().first().map(Outcome::remaining);
        on.equal(left, Some(remaining), || format!("remaining of the other at {now} s"));
        are_banned(on, &decision, &[false, (3..103).contains(&now)], &format!("at {now} s"));
    }
    Ok(())
}

async fn a_request_that_is_refused_twice_strikes_two_bans(on: &Subject) -> Checked {
    let other = Check::new(counter_of("other", "ada", QUOTA), 1);
    let other = other.ban(BanCheck::new(Ban::new(2, seconds(60), seconds(10))));
    // That the other key is banned does not keep the first one from its third strike.
    for (now, banned) in [(0, [false, false]), (1, [false, false]), (2, [false, true]), (3, [true, true])] {
        let decision = decide(on, now * S, &[banning("ada"), other.clone()]).await?;
        are_banned(on, &decision, &banned, &format!("at {now} s"));
        on.equal(decision.is_banned(), banned[1], || format!("the decision at {now} s"));
    }
    Ok(())
}

async fn in_shadow_mode_a_ban_refuses_nothing_and_takes_nothing(on: &Subject) -> Checked {
    on.next_key();
    let rows = [
        admits(0, 1, 0, 60 * S).shadow(),
        denies(S, 1, 0, 59 * S, 59 * S).shadow(),
        denies(2 * S, 1, 0, 58 * S, 58 * S).shadow(),
        banned(3 * S, 1, 100 * S).shadow(),
        banned(60 * S, 1, 43 * S).shadow(),
        admits(103 * S, 1, 0, 17 * S),
    ];
    run(on, ban(), &rows).await?;
    let shadow = banning("bob").mode(Mode::Shadow);
    for now in 0..4 {
        let _ = decide(on, now * S, std::slice::from_ref(&shadow)).await?;
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
    for now in 0..9 {
        are_banned(on, &decide(on, now * S, &[of(false)]).await?, &[false], "without strikes");
    }
    for now in 10..13 {
        are_banned(on, &decide(on, now * S, &[of(true)]).await?, &[now == 12], "with strikes");
    }
    are_banned(on, &decide(on, 60 * S, &[of(false)]).await?, &[true], "during a ban");
    Ok(())
}

async fn a_lifted_key_starts_anew(on: &Subject) -> Checked {
    begin(on).await?;
    on.at(60 * S)?;
    for found in [1, 0] {
        on.equal(on.adjust(&on.counter(QUOTA), Lift).await?.units, found, || "the bans that were lifted");
    }
    let rows =
        [admits(60 * S, 1, 0, 60 * S), denies(61 * S, 1, 0, 59 * S, 59 * S), denies(62 * S, 1, 0, 58 * S, 58 * S)];
    run(on, ban(), &rows).await?;
    on.adjust_at(62 * S, QUOTA, Lift).await?;
    let rows = [denies(63 * S, 1, 0, 57 * S, 57 * S), denies(64 * S, 1, 0, 56 * S, 56 * S), banned(65 * S, 1, 100 * S)];
    run(on, ban(), &rows).await?;
    on.reset(QUOTA).await?;
    run(on, ban(), &[banned(65 * S, 1, 100 * S)]).await
}

async fn a_strike_after_the_fact_counts(on: &Subject) -> Checked {
    on.next_key();
    on.at(0)?;
    for strike in 1..=2 {
        let taken = on.decide(&[on.check(QUOTA, 0)]).await?;
        let applied = on.settle_all(taken, &[Settlement::new(0, Strike(ban()))]).await?;
        on.equal(applied.first().map(|one| (one.units, one.banned_for)), Some((1, None)), || {
            format!("strike {strike}")
        });
    }
    let applied = on.adjust(&on.counter(QUOTA), Strike(ban())).await?;
    let found = (applied.units, applied.banned_for, applied.began);
    on.equal(found, (1, Some(seconds(100)), true), || "the third strike");
    let applied = on.adjust(&on.counter(QUOTA), Strike(ban())).await?;
    let found = (applied.units, applied.banned_for, applied.began);
    on.equal(found, (0, Some(seconds(100)), false), || "a strike during the ban");
    run(on, ban(), &[banned(0, 1, 100 * S), banned(0, 0, 100 * S), admits(100 * S, 1, 0, 20 * S)]).await
}

async fn a_ban_that_was_made_shorter_ends_sooner(on: &Subject) -> Checked {
    begin(on).await?;
    let shorter = Ban::new(3, seconds(60), seconds(70));
    run(on, shorter, &[banned(72 * S, 1, S), admits(73 * S, 1, 0, 47 * S)]).await
}

async fn a_ban_holds_while_the_clock_steps_back_and_not_for_ever(on: &Subject) -> Checked {
    on.at(1_000 * S)?;
    for now in 1_000..1_004 {
        let _ = decide(on, now * S, &[banning("ada")]).await?;
    }
    let back = decide(on, 803 * S, &[banning("ada")]).await?;
    are_banned(on, &back, &[true], "200 s before");
    on.equal(back.retry_after(), Some(seconds(300)), || "the time to retry");
    are_banned(on, &decide(on, 603 * S, &[banning("ada")]).await?, &[false], "400 s before");
    Ok(())
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
        for now in 0..4 {
            let decision = decide(on, now * S, std::slice::from_ref(&one)).await?;
            are_banned(on, &decision, &[now == 3], &format!("{quota} at {now} s"));
            let is_guess = quota.facts().held && (1..3).contains(&now);
            on.equal(decision.retry_is_guess(), is_guess, || format!("a guess of {quota} at {now} s"));
        }
        let banned = decide(on, 90 * S, std::slice::from_ref(&one)).await?;
        on.equal(banned.retry_after(), Some(seconds(13)), || format!("the time to retry of {quota}"));
        let admitted = decide(on, 103 * S, &[one]).await?;
        on.holds(admitted.is_allowed(), || format!("the ban of {quota} is over: {admitted:?}"));
    }
    Ok(())
}

async fn two_checks_of_one_counter_are_two_strikes(on: &Subject) -> Checked {
    let both = [banning("ada"), banning("ada")];
    // The first fits, and the second does not fit beside it.
    for now in 0..2 {
        are_banned(on, &decide(on, now * S, &both).await?, &[false, false], "after few strikes");
    }
    let admitted = decide(on, 2 * S, &both[..1]).await?;
    on.holds(admitted.is_allowed(), || format!("nothing was taken: {admitted:?}"));
    are_banned(on, &decide(on, 3 * S, &both).await?, &[true, true], "after the fourth strike");
    Ok(())
}

/// Where numbers of strikes may be kept in 16 bits, too.
async fn a_ban_after_any_number_of_strikes_is_not_there_before(on: &Subject) -> Checked {
    for after in [65_534, 65_535, 65_536, 100_000] {
        on.next_key();
        let rows = [admits(0, 1, 0, 60 * S), denies(S, 1, 0, 59 * S, 59 * S), admits(2 * S, 0, 0, 58 * S)];
        run(on, Ban::new(after, seconds(60), seconds(100)), &rows).await?;
    }
    Ok(())
}
