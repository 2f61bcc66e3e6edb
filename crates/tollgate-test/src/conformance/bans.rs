//! Tables of keys that are banned after a number of denials.

use std::time::Duration;

use tollgate::store::Change::{Lift, Reset, Strike};
use tollgate::{Ban, Quota};

use super::rows::{MS, Row, S, Table, adjusts, admits, at_once, banned, denies, never, settles, table, us};

const QUOTA: Quota = Quota::fixed_window(1, us(60 * S));

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// After three strikes within 60 s: 100 s, 200 s, and at most 300 s.
fn ban() -> Ban {
    Ban::new(3, seconds(60), seconds(100)).backoff(2.0, seconds(300))
}

#[track_caller]
fn fits(at: u64) -> Row {
    admits(at * S, 1, 0, (60 - at % 60) * S).ban(ban())
}

#[track_caller]
fn refused(at: u64) -> Row {
    let left = (60 - at % 60) * S;
    denies(at * S, 1, 0, left, left).ban(ban())
}

#[track_caller]
fn barred(at: u64, left: u64) -> Row {
    banned(at * S, 1, left * S).ban(ban())
}

#[track_caller]
fn look(now: u64, left: u64) -> Row {
    banned(now, 0, left).ban(ban())
}

fn banned_key(name: &'static str, rows: impl IntoIterator<Item = Row>) -> Table {
    let first = [fits(0), refused(1), refused(2), barred(3, 100)];
    table(name, QUOTA, first.into_iter().chain(rows).collect::<Vec<_>>())
}

pub(super) fn all() -> Vec<Table> {
    [lengths(), strikes(), several_checks(), changes()].concat()
}

fn lengths() -> Vec<Table> {
    let grows = [
        barred(50, 53),
        barred(60, 43),
        look(60 * S, 43 * S),
        banned(103 * S - MS, 1, MS).ban(ban()),
        banned(103 * S - 1, 1, MS).ban(ban()),
        fits(103),
        refused(104),
        refused(105),
        barred(106, 200),
        fits(306),
        refused(307),
        refused(308),
        barred(309, 300),
        fits(609),
        // The last ban was over for as long as the longest one.
        fits(909),
        refused(910),
        refused(911),
        barred(912, 100),
        fits(1_012),
        // At 1,073 s there is a new window of strikes.
        refused(1_013),
        fits(1_072),
        refused(1_073),
        refused(1_073),
    ];
    let short = Ban::new(1, seconds(60), seconds(30));
    let same = [fits(0), refused(0).banned(), refused(29).banned(), refused(30).banned(), fits(60)];
    // At 70 s it fits the quota.
    let extends = [barred(50, 100), barred(70, 100), look(80 * S, 90 * S), look(170 * S - 1, MS), fits(170)];
    let shorter = Ban::new(3, seconds(60), seconds(70));
    // Further ahead than it may be, a ban counts as none.
    let back = [fits(1_000), refused(1_001), refused(1_002), barred(1_003, 100), barred(803, 300), fits(603)];
    vec![
        banned_key("a_key_is_banned_after_its_strikes_and_each_time_for_longer", grows),
        table("a_ban_without_growth_is_always_as_long", QUOTA, same.map(|row| row.ban(short)).to_vec()),
        banned_key("a_refusal_during_a_ban_does_not_extend_it", [barred(50, 53), look(99 * S, 4 * S), fits(103)]),
        banned_key("a_refusal_extends_a_ban_if_that_is_asked_for", extends.map(|row| row.ban(ban().extending()))),
        banned_key("a_ban_that_was_made_shorter_ends_sooner", [barred(72, 1), fits(73)].map(|row| row.ban(shorter))),
        table("a_ban_holds_while_the_clock_steps_back_and_not_for_ever", QUOTA, back),
    ]
}

fn strikes() -> Vec<Table> {
    let peek = || admits(S, 0, 0, 59 * S).ban(ban());
    let looks = [fits(0), peek(), peek(), peek(), refused(1), refused(1), peek(), barred(1, 100), look(S, 100 * S)];
    let beyond = |left| never(0, 2, left, 0).ban(ban());
    let large = [beyond(1), beyond(1), never(0, 2, 0, 100 * S).banned().ban(ban()), barred(0, 100)];
    let counts_not = (1..9).map(|at| refused(at).counts_not());
    let counts_not = [fits(0)].into_iter().chain(counts_not).chain([refused(10), refused(11), barred(12, 100)]);
    let counts_not: Vec<_> = counts_not.chain([barred(59, 53).counts_not(), barred(60, 52).counts_not()]).collect();
    let mut tables = vec![
        table("a_look_is_no_strike_and_is_refused_by_a_ban", QUOTA, looks),
        table("a_cost_above_the_capacity_is_a_strike_and_no_wait_helps_it", QUOTA, large),
        table("a_ban_is_only_looked_at_where_checks_do_not_count", QUOTA, counts_not),
    ];
    // Includes numbers that do not fit 16 bits.
    tables.extend([65_534, 65_535, 65_536, 100_000].map(|after| {
        let rows = [fits(0), refused(1), admits(2 * S, 0, 0, 58 * S)];
        let rows = rows.map(|row| row.ban(Ban::new(after, seconds(60), seconds(100))));
        table("a_ban_after_any_number_of_strikes_is_not_there_before", QUOTA, rows)
    }));
    let buckets = [Quota::token_bucket(1, us(60 * S)), Quota::sliding_log(1, us(60 * S))];
    tables.extend(buckets.into_iter().chain([Quota::leaky_bucket(1, us(60 * S))]).map(|quota| {
        table(
            "buckets_have_bans_too",
            quota,
            [fits(0), refused(1), refused(2), barred(3, 100), barred(90, 13), fits(120)],
        )
    }));
    let taken = |at: u64| admits(at * S, 1, 0, 45 * S).ban(ban());
    let full = |at: u64| denies(at * S, 1, 0, S, (45 - at) * S).guessed().ban(ban());
    let slots = [taken(0), full(1), full(2), barred(3, 100), barred(90, 13), taken(103)];
    tables.push(table("slots_have_bans_too", Quota::concurrency(1).slot_ttl(us(40 * S)), slots));
    let window = |at: u64, left| denies(at * S, 1, 0, (60 - at) * S + 1, left).ban(ban());
    let first = admits(0, 1, 0, 120 * S).ban(ban());
    let barred = |at: u64, left, reset| denies(at * S, 1, 0, left, reset).banned().ban(ban());
    let (windows, bans) =
        ([first, window(1, 119 * S), window(2, 118 * S)], [barred(3, 100 * S, 117 * S), barred(90, 13 * S, 30 * S)]);
    let windows = [windows.to_vec(), bans.to_vec(), vec![admits(120 * S, 1, 0, 120 * S).ban(ban())]].concat();
    tables.push(table("sliding_windows_have_bans_too", Quota::sliding_window(1, us(60 * S)), windows));
    tables
}

fn several_checks() -> Vec<Table> {
    let nine = |at: u64, cost, left| {
        admits(at * S, cost, left, (600 - at) * S).policy("other").by(Quota::fixed_window(9, us(600 * S)))
    };
    let other = |row: Row| row.policy("other");
    // A denial by the other policy takes nothing from this one, and is no strike.
    let beyond = at_once([admits(0, 1, 1, 0).ban(ban()), other(never(0, 2, 1, 0))]);
    // A key that is banned takes nothing from other policies.
    let nothing = [
        at_once([nine(0, 1, 8), fits(0)]),
        at_once([nine(1, 1, 8), refused(1)]),
        at_once([nine(2, 1, 8), refused(2)]),
        at_once([nine(3, 1, 8), barred(3, 100)]),
        at_once([nine(60, 1, 8), barred(60, 43)]),
        at_once([nine(103, 1, 7), fits(103)]),
    ];
    // That the other key is banned does not keep the first one from its third strike.
    let quick = |row: Row| other(row.ban(Ban::new(2, seconds(60), seconds(10))));
    let both = [
        at_once([fits(0), quick(fits(0))]),
        at_once([refused(1), quick(refused(1))]),
        at_once([refused(2), quick(refused(2).banned())]),
        at_once([barred(3, 100), quick(refused(3).banned())]),
    ];
    // The first fits, and the second does not fit beside it.
    let pair = |at: u64| at_once([admits(at * S, 1, 1, 0), never(at * S, 1, 1, 0)].map(|row| row.ban(ban())));
    let last = at_once([barred(3, 100), never(3 * S, 1, 0, 100 * S).banned().ban(ban())]);
    let twice = [pair(0), pair(1), fits(2), last];
    let beyond_both = never(S, 1, 0, 59 * S).ban(ban());
    let both_refused = [fits(0), at_once([refused(1), beyond_both]), barred(2, 100)];
    let carol = admits(60 * S, 1, 0, 60 * S).key("carol");
    let shadow = [fits(0), refused(1), refused(2), barred(3, 100), barred(60, 43)].map(Row::shadow).into_iter();
    let shadow: Vec<_> = shadow.chain([at_once([barred(60, 43).shadow(), carol]), fits(103)]).collect();
    vec![
        table("a_refusal_by_another_policy_is_no_strike", QUOTA, [beyond.clone(), beyond.clone(), beyond, fits(0)]),
        table("a_banned_key_takes_nothing_from_other_policies", QUOTA, nothing),
        table("a_request_that_is_refused_twice_strikes_two_bans", QUOTA, both),
        table("two_checks_of_one_counter_are_two_strikes", QUOTA, twice),
        table("two_refusals_of_one_request_are_two_strikes", QUOTA, both_refused),
        table("in_shadow_mode_a_ban_refuses_nothing_and_takes_nothing", QUOTA, shadow),
    ]
}

fn changes() -> Vec<Table> {
    let lifted = [
        adjusts(60 * S, Lift, 1),
        adjusts(60 * S, Lift, 0),
        fits(60),
        refused(61),
        refused(62),
        adjusts(62 * S, Lift, 1),
        refused(63),
        refused(64),
        barred(65, 100),
        adjusts(65 * S, Reset, 1),
        barred(65, 100),
    ];
    let strike = Strike(ban());
    let after = [
        admits(0, 0, 1, 0),
        settles(0, 0, strike, 1),
        settles(0, 0, strike, 1),
        adjusts(0, strike, 1).bans(seconds(100), true),
        adjusts(0, strike, 0).bans(seconds(100), false),
        barred(0, 100),
        look(0, 100 * S),
        fits(100),
    ];
    vec![banned_key("a_lifted_key_starts_anew", lifted), table("a_strike_after_the_fact_counts", QUOTA, after)]
}
