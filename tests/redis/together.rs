//! Requests that come together share calls, and are decided as if they came one after the other: by the server's clock, by
//! scripts and by functions, with bans and without, by small levels and by large ones.

use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use tollgate::store::{Ask, BanCheck, Change, ChangeResult, Check, Mode, RedisStoreBuilder, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Limiter, MemoryStore, Quota, Rule};

use super::stores::{MONTH, adjust, connect, decide};
use crate::support::checks::check;
use crate::support::server::RedisServer;

const QUOTAS: [Quota; 5] = [
    Quota::fixed_window(30, MONTH),
    Quota::token_bucket(300, MONTH).burst(30),
    Quota::sliding_window(30, MONTH),
    Quota::sliding_log(30, MONTH),
    Quota::leaky_bucket(300, MONTH).queue(29),
];

/// The bucket among them with so many units that states of it are large; it has the same state.
const LARGE: Quota = Quota::token_bucket(3_000, MONTH).burst(2_500_000);

/// Several of each quota.
const KEYS: usize = 40;
const ROUNDS: usize = 60;

fn settings(functions: bool) -> RedisStoreBuilder {
    let settings = super::stores::settings();
    if functions { settings.functions() } else { settings }
}

fn quota_of(number: usize) -> Quota {
    QUOTAS[number % QUOTAS.len()]
}

/// A check that leaves some units, and now and then asks for more than there are at all, or of many more.
fn reserved(rng: &mut Rng, key: &str, quota: Quota) -> Check {
    let cost = if rng.u8(..20) == 0 { rng.u64(30..40) } else { rng.u64(0..3) };
    let is_large = quota == QUOTAS[1] && rng.u8(..4) == 0;
    let (quota, cost) = if is_large { (LARGE, cost * rng.u64(1..400_000)) } else { (quota, cost) };
    check(key, quota, cost).floor(rng.u64(0..4))
}

/// A client's own counter, that of its group, perhaps in shadow, and now and then its own once more.
fn several(rng: &mut Rng, number: usize, bans: bool) -> Vec<Check> {
    let (own, quota, group) = (number.to_string(), quota_of(number), number % 8);
    let mut checks = vec![reserved(rng, &own, quota), reserved(rng, &format!("group {group}"), quota_of(group))];
    if rng.u8(..4) == 0 {
        checks.push(check(&own, quota, rng.u64(0..3)));
    }
    for check in &mut checks {
        if rng.u8(..4) == 0 {
            check.mode = Mode::Shadow;
        }
        if bans && rng.u8(..3) > 0 {
            let ban = Ban::new(rng.u32(1..5), MONTH, MONTH / 2);
            let ban = if rng.bool() { ban.backoff(2.0, MONTH) } else { ban };
            let ban = BanCheck::new(if rng.bool() { ban.extending() } else { ban });
            let ban = if rng.u8(..6) > 0 { ban } else { ban.without_strikes() };
            *check = check.clone().ban(ban);
        }
    }
    checks
}

/// Whether a request was admitted, what was said of each check, and what it took.
fn told(decided: &StoreDecision) -> (bool, Vec<(bool, u64, bool)>, Vec<u64>) {
    let outcomes = decided.decision.outcomes().iter();
    let each = outcomes.map(|one| (one.is_allowed(), one.remaining(), one.is_banned())).collect();
    (decided.decision.is_allowed(), each, decided.receipt.items().iter().map(|taken| taken.units).collect())
}

/// Asks both stores the same, Redis all at once; they must tell the same, but for time.
async fn compare(functions: bool, bans: bool, seed: u64) {
    let (server, memory, mut rng) = (RedisServer::start(), MemoryStore::new(), Rng::with_seed(seed));
    let redis = connect(settings(functions), &server).await;
    let (mut admitted, mut banned) = (0, 0);
    for round in 0..ROUNDS {
        let mut requests: Vec<_> = (0..KEYS).map(|number| several(&mut rng, number, bans)).collect();
        if round % 3 == 0 {
            for checks in &mut requests {
                checks.truncate(1);
            }
        }
        let answers = join_all(requests.iter().map(|checks| redis.decide(checks, Ask::default()).wait())).await;
        for (checks, answer) in requests.iter().zip(answers) {
            let found = answer.expect("the server is up");
            let expected = decide(&memory, checks).await;
            assert_eq!(told(&found), told(&expected), "{functions} {seed} {round} {checks:#?}");
            admitted += usize::from(expected.decision.is_allowed());
            banned += usize::from(expected.decision.is_banned());
        }
        for _ in 0..if bans { 8 } else { 0 } {
            let number = rng.usize(..KEYS);
            let change = [Change::Strike(Ban::new(3, MONTH, MONTH)), Change::Reset, Change::Lift][rng.usize(..3)];
            let (key, quota) = (number.to_string(), quota_of(number));
            let told = |applied: ChangeResult| (applied.units, applied.banned_for.is_some());
            let found = told(adjust(&redis, &key, quota, change).await);
            let expected = told(adjust(&memory, &key, quota, change).await);
            assert_eq!(found, expected, "{functions} {seed} {round} {change:?}");
        }
    }
    server.assert_every_key_expires();
    let (calls, all) = (server.scripts(), KEYS * ROUNDS);
    assert!(calls < all as u64 / 2, "{calls} calls are not shared");
    assert!((100..all - 100).contains(&admitted), "{admitted} of {all} were admitted");
    assert!(!bans || (100..all * 9 / 10).contains(&banned), "{banned} of {all} were refused by a ban");
}

#[tokio::test]
async fn requests_that_share_a_call_are_decided_as_if_they_came_one_after_the_other() {
    for seed in 0..2 {
        for functions in [false, true] {
            for bans in [false, true] {
                compare(functions, bans, seed).await;
            }
        }
    }
}

#[tokio::test]
async fn as_many_bans_as_there_may_be_are_decided_alike_and_more_are_an_error_when_a_limiter_is_built() {
    let server = RedisServer::start();
    let ban = |number: u64| Ban::new(1 + u32::try_from(number % 3).expect("small"), MONTH, MONTH).of_verified_keys();
    for functions in [false, true] {
        let (memory, prefix) = (MemoryStore::new(), if functions { "f" } else { "s" });
        let redis = connect(settings(functions).prefix(prefix), &server).await;
        let checks: Vec<Check> = (0..127)
            .map(|number| {
                let mode = if number % 2 == 0 { Mode::Shadow } else { Mode::Enforce };
                let check = check(&format!("k{number}"), Quota::fixed_window(1 + number, MONTH), 1).mode(mode);
                check.ban(BanCheck::new(ban(number)))
            })
            .collect();
        for round in 0..8 {
            let (found, expected) = (decide(&redis, &checks).await, decide(&memory, &checks).await);
            assert_eq!(told(&found), told(&expected), "{functions} {round}");
        }
        let one = check("one", QUOTAS[0], 1);
        let more = [&checks[..], std::slice::from_ref(&one)].concat();
        drop(decide(&redis, &more).await);
        let more = [&checks[..], &[one.ban(BanCheck::new(ban(0)))]].concat();
        assert!(redis.decide(&more, Ask::default()).wait().await.expect_err("256 are").is_invalid());
        let rules = |many: u64| (0..many).map(|number| Rule::new(&format!("p{number}"), QUOTAS[0]).ban(ban(number)));
        assert!(Limiter::try_new(redis.clone(), rules(127)).is_ok(), "254 checks");
        assert!(Limiter::try_new(redis, rules(128)).expect_err("256 checks").is_invalid());
    }
}

/// By a clock that stands still the unit of before is still owed; by the server's it has returned, and two are taken.
#[tokio::test]
async fn a_clock_slower_than_the_servers_shortens_no_life_nor_does_the_time_since_a_state_was_written() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let slow = connect(settings(false).clock(clock), &server).await;
    let own = connect(settings(false).prefix("own"), &server).await;
    let quota = Quota::token_bucket(1, Duration::from_secs(2)).burst(100);
    for costs in [[1, 1], [1, 2]] {
        for (redis, cost) in [&slow, &own].into_iter().zip(costs) {
            let checks: Vec<Check> = (0..20).map(|key: u8| check(&key.to_string(), quota, cost)).collect();
            // Each is alone in a request, of which some share a call, but for the last four, which are in one.
            let (each, all) = checks.split_at(16);
            join_all(each.chunks(1).map(|checks| decide(redis, checks))).await;
            assert!(decide(redis, all).await.decision.is_allowed());
        }
        if costs == [1, 1] {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
        }
    }
    assert_eq!(server.keys().len(), 40);
    for key in server.keys() {
        let left: i64 = server.ask(&["PTTL", &key]);
        assert!(left > 3_000, "{key}: its two units return in 4 s, but it lives for {left} ms");
    }
}
