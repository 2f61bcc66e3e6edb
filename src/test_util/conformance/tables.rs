//! Tables with the numbers of each algorithm, and of requests with several checks: what is written here is the
//! definition, whatever the store in memory decides.

use super::case::Case;
use super::rows::{DAY, MS, S, adjusts, admits, denies, never, settles, us};
use super::subject::{Checked, Subject, check, counter_of, of_checks};
use crate::core::{Outcome, Quota};
use crate::store::Change::{Charge, Refund, Renew, Reset};
use crate::store::{Answer, Ask, Check, MemoryStore, Mode, Settlement, Store};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    fixed_window,
    sliding_log,
    sliding_window,
    token_bucket,
    leaky_bucket,
    concurrency,
    large_numbers,
    limits_that_change,
    policies_keys_and_windows_are_counted_apart,
    requests_are_admitted_as_a_whole,
    repeats_of_one_counter_add_up,
    shadow_checks_refuse_nothing,
    receipts_name_what_was_taken,
];

async fn fixed_window(on: &Subject) -> Checked {
    let five = Quota::fixed_window(5, us(60 * S));
    let rows = [
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
    ];
    on.table(five, &rows).await
}

async fn sliding_log(on: &Subject) -> Checked {
    let five = Quota::sliding_log(5, us(60 * S));
    let rows = [
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
    ];
    on.table(five, &rows).await
}

async fn sliding_window(on: &Subject) -> Checked {
    let ten = Quota::sliding_window(10, us(60 * S));
    let rows = [
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
    ];
    on.table(ten, &rows).await
}

async fn token_bucket(on: &Subject) -> Checked {
    let six = Quota::token_bucket(6, us(60 * S));
    let rows = [
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
        // One of two has come back by itself.
        settles(40 * S, 9, Refund(2), 1),
        admits(40 * S, 0, 2, 40 * S),
        adjusts(40 * S, Charge(u64::MAX), 8),
        denies(40 * S, 1, 0, 70 * S, 120 * S),
        denies(10 * S, 1, 0, 100 * S, 150 * S),
        admits(110 * S, 1, 0, 60 * S),
        // Further ahead than its window, it counts as new.
        admits(50 * S - 1, 1, 5, 10 * S),
        adjusts(50 * S - 1, Refund(9), 1),
        // Three of four have come back by themselves.
        admits(50 * S, 4, 2, 40 * S),
        settles(80 * S, 15, Refund(4), 1),
        admits(80 * S, 6, 0, 60 * S),
    ];
    on.table(six, &rows).await?;
    let rows = [
        admits(0, 14, 0, 120 * S),
        denies(0, 1, 0, 8_571_429, 120 * S),
        admits(8_571_429, 1, 0, 120 * S),
        admits(17_142_858, 1, 0, 120 * S),
        // Three sevenths of a minute are a tick less than three times one rounded up.
        denies(17_142_858, 1, 0, 8_571_428, 120 * S),
    ];
    on.table(Quota::token_bucket(7, us(60 * S)).burst(14), &rows).await
}

async fn leaky_bucket(on: &Subject) -> Checked {
    let queued = Quota::leaky_bucket(6, us(60 * S)).queue(2);
    let rows = [
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
    ];
    on.table(queued, &rows).await?;
    let rows = [
        admits(0, 2, 3, 20 * S),
        admits(0, 1, 2, 30 * S),
        admits(0, 1, 1, 40 * S).delay(10 * S),
        denies(0, 1, 0, 10 * S, 40 * S).floor(1),
        admits(70 * S, 3, 2, 30 * S),
    ];
    on.table(Quota::leaky_bucket(6, us(60 * S)).queue(4).at_once(3), &rows).await?;
    let strict = Quota::leaky_bucket(7, us(60 * S));
    on.table(strict, &[admits(0, 1, 0, 8_571_429), never(0, 2, 0, 8_571_429), admits(8_571_429, 1, 0, 8_571_429)]).await
}

/// Slots live 40 s; a cohort takes some for 5 s, and counts for 45 s. The time to retry is a guess of 1 s.
async fn concurrency(on: &Subject) -> Checked {
    let five = Quota::concurrency(5).slot_life(us(40 * S));
    let rows = [
        admits(0, 2, 3, 45 * S),
        admits(5 * S - 1, 1, 2, 40 * S + 1),
        admits(5 * S, 2, 0, 45 * S),
        denies(5 * S, 1, 0, S, 45 * S),
        never(5 * S, 6, 0, 45 * S),
        settles(6 * S, 0, Refund(1), 1),
        denies(6 * S, 1, 0, S, 44 * S).floor(1),
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
        denies(50 * S, 1, 0, S, 45 * S),
        adjusts(50 * S, Refund(9), 9),
        admits(50 * S, 2, 0, 45 * S),
        // The clock steps back.
        denies(10 * S, 1, 0, S, 85 * S),
        admits(10 * S - 1, 1, 4, 45 * S),
    ];
    on.table(five, &rows).await
}

async fn large_numbers(on: &Subject) -> Checked {
    let (most, billion, trillion) = ((1 << 49) - 1, 1_000_000_000, 1_000_000_000_000);
    let rows = [admits(0, most - 1, 1, 60 * S), denies(0, 2, 1, 60 * S, 60 * S), never(0, most + 1, 1, 60 * S)];
    on.table(Quota::fixed_window(most, us(60 * S)), &rows).await?;
    let rows = [
        admits(0, billion, 0, 2 * DAY),
        denies(DAY, 1, 0, MS, DAY),
        // 11.6 units a tick.
        denies(DAY + MS, 11_574, 12, 999 * MS, DAY - MS),
    ];
    on.table(Quota::sliding_window(billion, us(DAY)), &rows).await?;
    let rows = [
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
    ];
    on.table(Quota::token_bucket(billion, us(DAY)), &rows).await?;
    let rows = [admits(0, trillion, 0, 366 * DAY), denies(0, 1, 0, MS, 366 * DAY), admits(MS, 1, 30, 366 * DAY)];
    on.table(Quota::token_bucket(trillion, us(366 * DAY)), &rows).await?;
    let rows = [
        admits(0, billion, 0, DAY),
        denies(0, 1, 0, MS, DAY),
        admits(DAY / 2, 1, billion / 2 - 1, DAY / 2 + MS).delay(DAY / 2),
    ];
    on.table(Quota::leaky_bucket(billion, us(DAY)).queue(billion - 1), &rows).await?;
    // Windows of a microsecond, which a server forgets by real time.
    let tiny = [admits(0, 1, 1, 1), denies(0, 2, 1, 1, 1), admits(1, 2, 0, 1)];
    if on.forgets() { Ok(()) } else { on.table(Quota::fixed_window(2, us(1)), &tiny).await }
}

/// The units used are kept.
async fn limits_that_change(on: &Subject) -> Checked {
    let of = |limit| Quota::token_bucket(limit, us(60 * S));
    let rows = [
        admits(0, 5, 1, 50 * S),
        denies(0, 1, 0, 120 * S, 150 * S).by(of(2)),
        admits(0, 0, 15, 50 * S).by(of(6).burst(20)),
        admits(0, 5, 2, 50 * S).by(of(12)),
        denies(0, 1, 0, 50 * S, 100 * S),
    ];
    on.table(of(6), &rows).await?;
    let of = |limit| Quota::fixed_window(limit, us(60 * S));
    on.table(of(5), &[admits(0, 4, 1, 60 * S), never(0, 3, 0, 60 * S).by(of(2)), admits(0, 3, 2, 60 * S).by(of(9))])
        .await
}

async fn policies_keys_and_windows_are_counted_apart(on: &Subject) -> Checked {
    on.at(0)?;
    let five = Quota::fixed_window(5, us(60 * S));
    // As many milliseconds as the others are microseconds.
    let others = [
        Quota::fixed_window(5, us(61 * S)),
        Quota::fixed_window(5, us(60_000 * S)),
        Quota::token_bucket(5, us(60 * S)),
    ];
    let other = Check::new(counter_of("other", "ada", five), 5);
    let checks = others.map(|quota| check("ada", quota, 5)).into_iter();
    for check in checks.chain([check("ada", five, 5), check("bob", five, 5), other]) {
        let decision = on.decide(std::slice::from_ref(&check)).await?.decision;
        on.holds(decision.is_allowed(), || format!("{check:?} is admitted: {decision:?}"));
    }
    Ok(())
}

const IP: Quota = Quota::token_bucket(10, us(3_600 * S));
const USER: Quota = Quota::token_bucket(5, us(3_000 * S));
const ROUTE: Quota = Quota::token_bucket(1, us(6_000 * S));

/// A request by one client as one user on one route.
fn request(ip: u64, user: u64, route: u64) -> [Check; 3] {
    [check("ip", IP, ip), check("user", USER, user), check("route", ROUTE, route)]
}

/// Compares whether a request is admitted, what remains, and which quota binds with which time to retry.
async fn decides(
    on: &Subject,
    checks: &[Check],
    allowed: bool,
    remaining: &[u64],
    binds: Option<(Quota, Option<u64>)>,
) -> Checked {
    let decision = on.decide(checks).await?.decision;
    let left: Vec<u64> = decision.outcomes().iter().map(Outcome::remaining).collect();
    let found = (decision.is_allowed(), &*left, decision.binding().map(|outcome| *outcome.quota()));
    on.equal(found, (allowed, remaining, binds.map(|(quota, _)| quota)), || of_checks(checks));
    let (wait, expected) = (decision.retry_after(), binds.and_then(|(_, wait)| wait).map(us));
    let is_exact = wait.unwrap_or_default().abs_diff(expected.unwrap_or_default()) <= on.tolerance();
    on.holds(is_exact && wait.is_some() == expected.is_some(), || {
        format!("{}: expected to wait {expected:?}, found {wait:?}", of_checks(checks))
    });
    Ok(())
}

async fn requests_are_admitted_as_a_whole(on: &Subject) -> Checked {
    on.at(0)?;
    decides(on, &[], true, &[], None).await?;
    for (refusing, quota) in [IP, USER, ROUTE].into_iter().enumerate() {
        let mut checks = request(1, 1, 1);
        checks[refusing].cost = 100;
        decides(on, &checks, false, &[10, 5, 1], Some((quota, None))).await?;
    }
    decides(on, &request(8, 2, 0), true, &[2, 3, 1], Some((ROUTE, None))).await?;
    for _ in 0..20 {
        decides(on, &request(3, 5, 1), false, &[2, 3, 1], Some((USER, Some(1_200 * S)))).await?;
    }
    decides(on, &request(11, 5, 1), false, &[2, 3, 1], Some((IP, None))).await?;
    decides(on, &request(1, 0, 0), true, &[1, 3, 1], Some((IP, None))).await
}

async fn repeats_of_one_counter_add_up(on: &Subject) -> Checked {
    on.at(0)?;
    let pair = |one, two| [check("twice", USER, one), check("twice", USER, two)];
    decides(on, &pair(2, 2), true, &[3, 1], Some((USER, None))).await?;
    decides(on, &pair(1, 1), false, &[1, 1], Some((USER, Some(600 * S)))).await?;
    decides(on, &pair(0, 1), true, &[1, 0], Some((USER, None))).await?;
    decides(on, &pair(3, 3), false, &[0, 0], Some((USER, None))).await
}

async fn shadow_checks_refuse_nothing(on: &Subject) -> Checked {
    on.at(0)?;
    let shadow = |cost| check("shadow", USER, cost).mode(Mode::Shadow);
    // One that does not fit takes nothing, and one that fits takes nothing of a refused request.
    decides(on, &[shadow(6), check("ip", IP, 1)], true, &[5, 9], Some((IP, None))).await?;
    decides(on, &[shadow(1), check("ip", IP, 11)], false, &[5, 9], Some((IP, None))).await?;
    decides(on, &[shadow(5)], true, &[0], None).await?;
    decides(on, &[shadow(1)], true, &[0], None).await?;
    let decided = on.decide(&[shadow(1)]).await?.decision;
    on.holds(decided.outcomes().iter().all(|outcome| !outcome.is_allowed()), || format!("it fits: {decided:?}"));
    Ok(())
}

async fn receipts_name_what_was_taken(on: &Subject) -> Checked {
    on.at(0)?;
    let [ip, ..] = request(1, 0, 0);
    let shadow = check("shadow", USER, 6).mode(Mode::Shadow);
    for (cost, expected) in [(3, &[3, 2, 0, 0][..]), (11, &[])] {
        let checks = [ip.clone().cost(cost), check("user", USER, 2), check("route", ROUTE, 0), shadow.clone()];
        let taken = on.decide(&checks).await?.receipt;
        let units: Vec<u64> = taken.taken().iter().map(|taken| taken.units).collect();
        on.equal(&*units, expected, || format!("what {cost} took"));
    }
    // A settlement changes the check it names, by what was taken and no more.
    let admitted = on.decide(&request(2, 1, 0)).await?;
    let changes = [Settlement::new(1, Refund(u64::MAX)), Settlement::new(0, Charge(2)), Settlement::new(2, Refund(1))];
    let applied = on.settle_all(admitted, &changes).await?;
    on.equal(applied.iter().map(|one| one.units).collect(), vec![1, 2, 0], || "what a settlement changed");
    let (kept, other) = (on.decide(&request(1, 0, 0)).await?, MemoryStore::new());
    on.settle_all(kept, &[]).await?;
    if let Answer::Ready(Ok(foreign)) = other.decide(&request(1, 1, 1), Ask::default()) {
        on.settle_all(foreign, &[Settlement::new(0, Refund(1))]).await?;
    }
    decides(on, &request(0, 0, 0), true, &[2, 3, 1], Some((ROUTE, None))).await
}
