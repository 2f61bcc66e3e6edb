//! Tables with the numbers of each algorithm, and of requests with several checks. They are the definition, whatever
//! the memory store decides.

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund, Renew, Reset};

use super::rows::{
    DAY, MS, Row, S, Table, adjusts, admits, at_once, denies, never, nothing, settles, settles_each, table, us,
};

pub(super) fn all(forgets: bool) -> Vec<Table> {
    [windows(), buckets(), slots(), large_numbers(forgets), counters(), several_checks()].concat()
}

fn windows() -> Vec<Table> {
    vec![
        table(
            "fixed_window",
            Quota::fixed_window(5, us(60 * S)),
            [
                // Windows are aligned to the epoch.
                admits(55 * S, 5, 0, 5 * S),
                denies(60 * S - 1, 1, 0, 1, 1),
                admits(60 * S, 1, 4, 60 * S),
                never(60 * S, 6, 4, 60 * S),
                denies(60 * S, 2, 1, 60 * S, 60 * S).floor(3),
                never(60 * S, 1, 0, 60 * S).floor(5),
                settles(61 * S, 2, Charge(u64::MAX), 9),
                adjusts(61 * S, Refund(5), 5),
                denies(61 * S, 1, 0, 59 * S, 59 * S),
                adjusts(61 * S, Refund(1), 1),
                admits(61 * S, 1, 0, 59 * S),
                admits(130 * S, 4, 1, 50 * S),
                settles(130 * S, 2, Refund(1), 0),
                // The clock steps back.
                denies(60 * S, 2, 1, 120 * S, 120 * S),
                // Further ahead than a window is long, it counts as new.
                admits(59 * S, 1, 4, S),
                adjusts(59 * S, Reset, 1),
                adjusts(59 * S, Reset, 0),
                adjusts(59 * S, Refund(1), 0),
            ],
        ),
        table(
            "sliding_log",
            Quota::sliding_log(5, us(60 * S)),
            [
                admits(0, 1, 4, 60 * S),
                admits(10 * S, 2, 2, 60 * S),
                admits(30 * S, 2, 0, 60 * S),
                denies(40 * S, 1, 0, 20 * S, 50 * S),
                denies(40 * S, 3, 0, 30 * S, 50 * S),
                denies(60 * S - 1, 1, 0, 1, 30 * S + 1),
                never(60 * S - 1, 6, 0, 30 * S + 1),
                admits(60 * S, 1, 0, 60 * S),
                settles(61 * S, 2, Refund(9), 2),
                denies(61 * S, 2, 1, 9 * S, 59 * S).floor(1),
                settles(70 * S, 1, Refund(2), 0),
                // The newest first, without a receipt.
                adjusts(70 * S, Charge(9), 9),
                adjusts(70 * S, Refund(7), 7),
                admits(70 * S, 2, 0, 60 * S),
                // The clock steps back.
                denies(10 * S, 1, 0, 110 * S, 120 * S),
                admits(10 * S - 1, 5, 0, 60 * S),
            ],
        ),
        table(
            "sliding_window",
            Quota::sliding_window(10, us(60 * S)),
            [
                admits(0, 10, 0, 120 * S),
                denies(0, 1, 0, 60 * S + 1, 120 * S),
                denies(90 * S, 6, 5, 1, 30 * S),
                admits(90 * S, 5, 0, 90 * S),
                denies(96 * S, 2, 1, 1, 84 * S),
                admits(96 * S + 1, 2, 0, 84 * S - 1),
                denies(96 * S + 1, 10, 0, 75_428_571, 84 * S - 1),
                settles(120 * S, 3, Refund(9), 5),
                never(120 * S, 9, 6, 60 * S).floor(2),
                settles(120 * S, 0, Refund(10), 0),
                // The newer window first, without a receipt.
                admits(120 * S, 1, 7, 120 * S),
                adjusts(120 * S, Refund(2), 2),
                adjusts(120 * S, Charge(u64::MAX), 19),
                denies(120 * S, 1, 0, 88_421_053, 120 * S),
                // The clock steps back.
                denies(60 * S, 1, 0, 148_421_053, 180 * S),
                admits(60 * S - 1, 1, 9, 60 * S + 1),
            ],
        ),
    ]
}

fn buckets() -> Vec<Table> {
    let strict = [admits(0, 1, 0, 8_571_429), never(0, 2, 0, 8_571_429), admits(8_571_429, 1, 0, 8_571_429)];
    vec![
        table(
            "token_bucket",
            Quota::token_bucket(6, us(60 * S)),
            [
                never(0, 7, 6, 0),
                admits(0, 1, 5, 10 * S),
                denies(0, 4, 3, 10 * S, 10 * S).floor(2),
                admits(0, 5, 0, 60 * S),
                denies(0, 1, 0, 10 * S, 60 * S),
                never(0, 1, 0, 60 * S).floor(6),
                denies(10 * S - 1, 1, 0, 1, 50 * S + 1),
                admits(10 * S, 1, 0, 60 * S),
                denies(25 * S, 2, 1, 5 * S, 45 * S),
                admits(30 * S, 2, 0, 60 * S),
                // One of two has returned with time.
                settles(40 * S, 9, Refund(2), 1),
                admits(40 * S, 0, 2, 40 * S),
                adjusts(40 * S, Charge(u64::MAX), 8),
                denies(40 * S, 1, 0, 70 * S, 120 * S),
                denies(10 * S, 1, 0, 100 * S, 150 * S),
                admits(110 * S, 1, 0, 60 * S),
                // Further ahead than its window, it counts as new.
                admits(50 * S - 1, 1, 5, 10 * S),
                adjusts(50 * S - 1, Refund(9), 1),
                // Three of four have returned with time.
                admits(50 * S, 4, 2, 40 * S),
                settles(80 * S, 15, Refund(4), 1),
                admits(80 * S, 6, 0, 60 * S),
            ],
        ),
        table(
            "token_bucket_with_a_burst",
            Quota::token_bucket(7, us(60 * S)).burst(14),
            [
                admits(0, 14, 0, 120 * S),
                denies(0, 1, 0, 8_571_429, 120 * S),
                admits(8_571_429, 1, 0, 120 * S),
                admits(17_142_858, 1, 0, 120 * S),
                // Three sevenths of a minute are a tick less than three times one rounded up.
                denies(17_142_858, 1, 0, 8_571_428, 120 * S),
            ],
        ),
        table(
            "leaky_bucket",
            Quota::leaky_bucket(6, us(60 * S)).queue(2),
            [
                admits(0, 1, 2, 10 * S),
                admits(0, 1, 1, 20 * S).delay(10 * S),
                admits(5 * S, 1, 0, 25 * S).delay(15 * S),
                denies(5 * S, 1, 0, 5 * S, 25 * S),
                settles(5 * S, 1, Refund(1), 0),
                settles(5 * S, 2, Refund(1), 1),
                admits(5 * S, 3, 0, 45 * S).delay(15 * S),
                denies(5 * S, 1, 0, 25 * S, 45 * S),
                denies(30 * S - 1, 1, 0, 1, 20 * S + 1),
                never(30 * S, 3, 0, 20 * S).floor(1),
                adjusts(30 * S, Charge(u64::MAX), 4),
                denies(30 * S, 1, 0, 40 * S, 60 * S),
                // The clock steps back.
                denies(10 * S, 1, 0, 60 * S, 80 * S),
                adjusts(30 * S, Refund(u64::MAX), 6),
            ],
        ),
        table(
            "leaky_bucket_with_some_at_once",
            Quota::leaky_bucket(6, us(60 * S)).queue(4).nodelay(3),
            [
                admits(0, 2, 3, 20 * S),
                admits(0, 1, 2, 30 * S),
                admits(0, 1, 1, 40 * S).delay(10 * S),
                denies(0, 1, 0, 10 * S, 40 * S).floor(1),
                admits(70 * S, 3, 2, 30 * S),
            ],
        ),
        table("leaky_bucket_without_a_queue", Quota::leaky_bucket(7, us(60 * S)), strict),
    ]
}

/// Slots live 40 s. A cohort takes slots for 5 s, and counts for 45 s. The time to retry is a guess of 1 s.
fn slots() -> Vec<Table> {
    vec![table(
        "concurrency",
        Quota::concurrency(5).slot_ttl(us(40 * S)),
        [
            admits(0, 2, 3, 45 * S),
            admits(5 * S - 1, 1, 2, 40 * S + 1),
            admits(5 * S, 2, 0, 45 * S),
            denies(5 * S, 1, 0, S, 45 * S).guessed(),
            never(5 * S, 6, 0, 45 * S),
            settles(6 * S, 0, Refund(1), 1),
            denies(6 * S, 1, 0, S, 44 * S).floor(1).guessed(),
            settles(15 * S, 2, Renew(9), 2),
            admits(45 * S - 1, 0, 1, 15 * S + 1),
            admits(45 * S, 0, 3, 15 * S),
            settles(45 * S, 1, Refund(1), 0),
            settles(45 * S, 2, Refund(3), 2),
            settles(45 * S, 2, Refund(3), 0),
            admits(50 * S, 4, 1, 45 * S),
            // Up to twice the limit is charged, and slots that were lost are taken again beyond that.
            adjusts(50 * S, Charge(9), 6),
            settles(50 * S, 2, Renew(2), 0),
            denies(50 * S, 1, 0, S, 45 * S).guessed(),
            adjusts(50 * S, Refund(9), 9),
            admits(50 * S, 2, 0, 45 * S),
            // The clock steps back.
            denies(10 * S, 1, 0, S, 85 * S).guessed(),
            admits(10 * S - 1, 1, 4, 45 * S),
            // A slot lasts as long as one of the latest time would, even if none of these is left.
            admits(50 * S, 1, 3, 45 * S),
            adjusts(50 * S, Refund(9), 2),
            admits(20 * S, 1, 4, 75 * S),
        ],
    )]
}

fn large_numbers(forgets: bool) -> Vec<Table> {
    let (most, billion, trillion) = ((1 << 49) - 1, 1_000_000_000, 1_000_000_000_000);
    let window = [admits(0, most - 1, 1, 60 * S), denies(0, 2, 1, 60 * S, 60 * S), never(0, most + 1, 1, 60 * S)];
    let year = [admits(0, trillion, 0, 366 * DAY), denies(0, 1, 0, MS, 366 * DAY), admits(MS, 1, 30, 366 * DAY)];
    let tiny = [admits(0, 1, 1, 1), denies(0, 2, 1, 1, 1), admits(1, 2, 0, 1)];
    let mut tables = vec![
        table("large_fixed_window", Quota::fixed_window(most, us(60 * S)), window),
        table(
            "large_sliding_window",
            Quota::sliding_window(billion, us(DAY)),
            [
                admits(0, billion, 0, 2 * DAY),
                denies(DAY, 1, 0, MS, DAY),
                // 11.6 units a tick.
                denies(DAY + MS, 11_574, 12, 999 * MS, DAY - MS),
            ],
        ),
        table(
            "large_token_bucket",
            Quota::token_bucket(billion, us(DAY)),
            [
                admits(0, billion, 0, DAY),
                denies(0, 1_000, 0, 87 * MS, DAY),
                adjusts(0, Reset, 1),
                admits(0, billion / 2, billion / 2, DAY / 2),
                admits(0, billion / 2, 0, DAY),
                denies(999, 1, 0, MS, DAY),
                // Without the eleven units that came back since.
                settles(MS, 3, Refund(billion / 2), billion / 2 - 11),
                admits(MS, 0, billion / 2, DAY / 2),
                denies(MS, billion / 2, billion / 2 - 100, 9 * MS, DAY / 2).floor(100),
                adjusts(MS, Charge(u64::MAX), 3 * billion / 2),
                denies(MS, 1, 0, DAY + MS, 2 * DAY),
            ],
        ),
        table("larger_token_bucket", Quota::token_bucket(trillion, us(366 * DAY)), year),
        table(
            "large_leaky_bucket",
            Quota::leaky_bucket(billion, us(DAY)).queue(billion - 1),
            [
                admits(0, billion, 0, DAY),
                denies(0, 1, 0, MS, DAY),
                admits(DAY / 2, 1, billion / 2 - 1, DAY / 2 + MS).delay(DAY / 2),
            ],
        ),
    ];
    // A server forgets such windows by real time.
    tables.extend((!forgets).then(|| table("windows_of_a_microsecond", Quota::fixed_window(2, us(1)), tiny)));
    tables
}

fn counters() -> Vec<Table> {
    let bucket = |limit| Quota::token_bucket(limit, us(60 * S));
    let window = |limit| Quota::fixed_window(limit, us(60 * S));
    let windows =
        [admits(0, 4, 1, 60 * S), never(0, 3, 0, 60 * S).by(window(2)), admits(0, 3, 2, 60 * S).by(window(9))];
    vec![
        table(
            "limits_that_change",
            bucket(6),
            [
                admits(0, 5, 1, 50 * S),
                denies(0, 1, 0, 120 * S, 150 * S).by(bucket(2)),
                admits(0, 0, 15, 50 * S).by(bucket(6).burst(20)),
                admits(0, 5, 2, 50 * S).by(bucket(12)),
                denies(0, 1, 0, 50 * S, 100 * S),
            ],
        ),
        table("limits_of_windows_that_change", window(5), windows),
        table(
            "policies_keys_and_windows_are_counted_apart",
            bucket(5),
            [
                admits(0, 5, 0, 60 * S),
                admits(0, 5, 0, 60 * S).policy("other"),
                admits(0, 5, 0, 60 * S).key("bob"),
                admits(0, 5, 0, 61 * S).by(Quota::token_bucket(5, us(61 * S))),
                // As many milliseconds as the others have microseconds.
                admits(0, 5, 0, 60_000 * S).by(Quota::token_bucket(5, us(60_000 * S))),
                admits(0, 1, 0, 12 * S).by(Quota::leaky_bucket(5, us(60 * S))),
            ],
        ),
    ]
}

fn bucket_of(policy: &str) -> (Quota, u64) {
    match policy {
        "ip" => (Quota::token_bucket(10, us(3_600 * S)), 360 * S),
        "user" => (Quota::token_bucket(5, us(3_000 * S)), 600 * S),
        _ => (Quota::token_bucket(1, us(6_000 * S)), 6_000 * S),
    }
}

#[track_caller]
fn fits(policy: &'static str, cost: u64, left: u64) -> Row {
    let (quota, unit) = bucket_of(policy);
    admits(0, cost, left, (quota.limit() - left) * unit).policy(policy).by(quota)
}

#[track_caller]
fn lacks(policy: &'static str, cost: u64, left: u64) -> Row {
    let (quota, unit) = bucket_of(policy);
    let reset = (quota.limit() - left) * unit;
    let is_beyond = cost > quota.limit();
    let row = if is_beyond { never(0, cost, left, reset) } else { denies(0, cost, left, (cost - left) * unit, reset) };
    row.policy(policy).by(quota)
}

fn several_checks() -> Vec<Table> {
    let (ip, user) = (bucket_of("ip").0, bucket_of("user").0);
    let two_lack = at_once([lacks("ip", 3, 2), lacks("user", 5, 3), fits("route", 1, 1)]);
    let whole = [
        nothing(),
        at_once([lacks("ip", 100, 10), fits("user", 1, 5), fits("route", 1, 1)]),
        at_once([fits("ip", 1, 10), lacks("user", 100, 5), fits("route", 1, 1)]),
        at_once([fits("ip", 1, 10), fits("user", 1, 5), lacks("route", 100, 1)]),
        at_once([fits("ip", 8, 2), fits("user", 2, 3), fits("route", 0, 1)]),
        two_lack.clone(),
        two_lack.clone(),
        two_lack,
        at_once([lacks("ip", 11, 2), lacks("user", 5, 3), fits("route", 1, 1)]),
        at_once([fits("ip", 1, 1), fits("user", 0, 3), fits("route", 0, 1)]),
    ];
    let repeats = [
        at_once([fits("user", 2, 3), fits("user", 2, 1)]),
        at_once([fits("user", 1, 1), denies(0, 1, 1, 600 * S, 2_400 * S).policy("user")]),
        at_once([fits("user", 0, 1), fits("user", 1, 0)]),
        at_once([lacks("user", 3, 0), never(0, 3, 0, 3_000 * S).policy("user")]),
    ];
    // A check that does not fit takes nothing, and a check that fits takes nothing in a denied request.
    let shadow = [
        at_once([lacks("user", 6, 5).shadow(), fits("ip", 1, 9)]),
        at_once([fits("user", 1, 5).shadow(), lacks("ip", 11, 9)]),
        fits("user", 5, 0).shadow(),
        lacks("user", 1, 0).shadow(),
        lacks("user", 1, 0).shadow(),
    ];
    // A settlement changes only the checks that it names, by at most the units taken.
    let receipts = [
        at_once([fits("ip", 3, 7), fits("user", 2, 3), fits("route", 0, 1), lacks("user", 6, 5).key("bob").shadow()]),
        at_once([lacks("ip", 11, 7), fits("user", 2, 3), fits("route", 0, 1)]),
        at_once([fits("ip", 2, 5), fits("user", 1, 2), fits("route", 0, 1)]),
        settles_each(0, 2, &[(1, Refund(u64::MAX), 1), (0, Charge(2), 2), (2, Refund(1), 0)]),
        at_once([fits("ip", 0, 3), fits("user", 0, 3), fits("route", 0, 1)]),
    ];
    vec![
        table("requests_are_admitted_as_a_whole", ip, whole),
        table("repeats_of_one_counter_add_up", user, repeats),
        table("shadow_checks_refuse_nothing", user, shadow),
        table("receipts_name_what_was_taken", ip, receipts),
    ]
}
