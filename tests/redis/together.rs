//! Keys that are asked about together, by the server's clock: most decisions are.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use futures::future::{FutureExt, join_all};
use tollgate::store::{Ask, Change, Check, Mode, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, MemoryStore, Quota, RedisStore};

use super::stores::PATIENCE;
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

/// Hardly a unit returns during a test.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

const QUOTAS: [Quota; 5] = [
    Quota::fixed_window(30, MONTH),
    Quota::token_bucket(300, MONTH).burst(30),
    Quota::sliding_window(30, MONTH),
    Quota::sliding_log(30, MONTH),
    Quota::leaky_bucket(300, MONTH).queue(29),
];

/// Several of each quota.
const KEYS: usize = 40;
const ROUNDS: usize = 40;

async fn store(server: &RedisServer) -> RedisStore {
    let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE);
    settings.connect(&server.url()).await.expect("the server was started")
}

/// Asks both stores the same, Redis all at once; they must tell the same, but for time. Returns which
/// requests were admitted.
async fn compare(redis: &RedisStore, memory: &MemoryStore, requests: &[Vec<Check>]) -> Vec<bool> {
    let told = |decision: &Decision| {
        let outcomes = decision.outcomes().iter();
        (decision.is_allowed(), outcomes.map(|outcome| (outcome.is_allowed(), outcome.remaining())).collect::<Vec<_>>())
    };
    let answers = join_all(requests.iter().map(|checks| redis.decide(checks, Ask::default()).wait())).await;
    let mut admitted = Vec::new();
    for (checks, answer) in requests.iter().zip(answers) {
        let decided = answer.expect("the server is up");
        let expected = memory.decide(checks, Ask::default()).wait().await.expect("memory is always there");
        assert_eq!(told(&decided.decision), told(&expected.decision), "{checks:?}");
        admitted.push(expected.decision.is_allowed());
    }
    admitted
}

/// Compares rounds of requests, whose algorithms are all there; `request` is told a number for each.
async fn compare_rounds(mut request: impl FnMut(&mut Rng, usize) -> Vec<Check>) {
    let (server, memory, mut rng) = (RedisServer::start(), MemoryStore::new(), Rng::with_seed(7));
    let redis = store(&server).await;
    let mut admitted = [0; QUOTAS.len()];
    for _ in 0..ROUNDS {
        let requests: Vec<_> = (0..KEYS).map(|number| request(&mut rng, number)).collect();
        for (number, is_admitted) in compare(&redis, &memory, &requests).await.into_iter().enumerate() {
            admitted[number % QUOTAS.len()] += usize::from(is_admitted);
        }
    }
    let each = KEYS / QUOTAS.len();
    assert!(admitted.iter().all(|admitted| (each..each * ROUNDS).contains(admitted)), "{admitted:?}");
    server.assert_every_key_expires();
}

#[tokio::test]
async fn one_check_each_is_decided_as_if_they_came_one_after_the_other() {
    compare_rounds(|rng, key| vec![reserved(rng, &key.to_string(), quota_of(key), 0..5)]).await;
}

#[tokio::test]
async fn several_checks_each_over_shared_and_repeated_keys_are_too() {
    compare_rounds(several).await;
}

/// Bans by the server's clock, in calls that many requests share, by scripts and by functions.
#[tokio::test]
async fn several_checks_with_bans_are_too() {
    use tollgate::Ban;
    use tollgate::store::BanCheck;
    for functions in [false, true] {
        for seed in 0..6 {
            let (server, memory, mut rng) = (RedisServer::start(), MemoryStore::new(), Rng::with_seed(seed));
            let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE);
            let settings = if functions { settings.functions() } else { settings };
            let redis = settings.connect(&server.url()).await.expect("the server was started");
            let (mut banned, mut all) = (0, 0);
            for round in 0..60 {
                let requests: Vec<_> = (0..KEYS)
                    .map(|number| {
                        let mut checks = several(&mut rng, number);
                        for check in &mut checks {
                            if rng.u8(..6) == 0 {
                                check.mode = Mode::Shadow;
                            }
                            if rng.u8(..8) == 0 {
                                check.cost = 0;
                            }
                            if rng.u8(..3) > 0 {
                                let ban = Ban::new(rng.u32(1..5), MONTH, MONTH / 2);
                                let ban = if rng.bool() { ban.backoff(2.0, MONTH) } else { ban };
                                let ban = if rng.bool() { ban.extending() } else { ban };
                                let ban = BanCheck::new(ban);
                                let ban = if rng.u8(..6) > 0 { ban } else { ban.without_strikes() };
                                *check = check.clone().ban(ban);
                            }
                        }
                        checks
                    })
                    .collect();
                let answers = join_all(requests.iter().map(|checks| redis.decide(checks, Ask::default()).wait())).await;
                for (checks, answer) in requests.iter().zip(answers) {
                    let found = answer.expect("the server is up");
                    let expected = memory.decide(checks, Ask::default()).wait().await.expect("memory is always there");
                    let told = |decided: &tollgate::store::StoreDecision| {
                        let each: Vec<_> = decided
                            .decision
                            .outcomes()
                            .iter()
                            .map(|one| (one.is_allowed(), one.remaining(), one.is_banned()))
                            .collect();
                        let taken: Vec<_> = decided.receipt.items().iter().map(|taken| taken.units).collect();
                        (decided.decision.is_allowed(), each, taken)
                    };
                    assert_eq!(told(&found), told(&expected), "{functions} {seed} {round} {checks:#?}");
                    banned += usize::from(expected.decision.is_banned());
                    all += 1;
                }
                for _ in 0..8 {
                    let own = rng.usize(..KEYS);
                    let group = rng.usize(..8);
                    let (key, quota) = if rng.bool() {
                        (own.to_string(), quota_of(own))
                    } else {
                        (format!("group {group}"), quota_of(group))
                    };
                    let change = match rng.u8(..4) {
                        0 => Change::Strike(Ban::new(3, MONTH, MONTH)),
                        1 => Change::Reset,
                        _ => Change::Lift,
                    };
                    let counter = counter(&key, quota);
                    let found = redis.adjust(&counter, change).wait().await.expect("the server is up");
                    let expected = memory.adjust(&counter, change).wait().await.expect("memory is there");
                    let told = |applied: &tollgate::store::ChangeResult| (applied.units, applied.banned_for.is_some());
                    assert_eq!(told(&found), told(&expected), "{functions} {seed} {round} {change:?}");
                }
            }
            server.assert_every_key_expires();
            eprintln!("{banned} of {all} by a ban");
            assert!(banned > 100 && banned < all * 9 / 10, "{banned} of {all}");
        }
    }
}

/// As many bans as one request may have.
#[tokio::test]
async fn as_many_bans_as_there_may_be_are_decided_alike() {
    use tollgate::Ban;
    use tollgate::store::BanCheck;
    let server = RedisServer::start();
    for functions in [false, true] {
        let memory = MemoryStore::new();
        let settings =
            RedisStore::builder().without_deny_cache().timeout(PATIENCE).prefix(if functions { "f" } else { "s" });
        let settings = if functions { settings.functions() } else { settings };
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        let checks: Vec<Check> = (0..127)
            .map(|number| {
                let mode = if number % 2 == 0 { Mode::Shadow } else { Mode::Enforce };
                let check = check(&format!("k{number}"), Quota::fixed_window(1 + number, MONTH), 1).mode(mode);
                check.ban(BanCheck::new(Ban::new(1 + u32::try_from(number % 3).expect("small"), MONTH, MONTH)))
            })
            .collect();
        for round in 0..8 {
            let found = redis.decide(&checks, Ask::default()).wait().await.expect("254 are not too many").decision;
            let expected = memory.decide(&checks, Ask::default()).wait().await.expect("memory").decision;
            let told = |decision: &Decision| {
                let each = decision.outcomes().iter();
                each.map(|one| (one.is_allowed(), one.remaining(), one.is_banned())).collect::<Vec<_>>()
            };
            assert_eq!(told(&found), told(&expected), "{functions} {round}");
        }
        let more = [&checks[..], &[check("one", MONTHLY, 1)]].concat();
        assert!(redis.decide(&more, Ask::default()).wait().await.is_ok(), "255 are not");
        let more = [&checks[..], &[check("one", MONTHLY, 1).ban(BanCheck::new(Ban::new(1, MONTH, MONTH)))]].concat();
        assert!(redis.decide(&more, Ask::default()).wait().await.expect_err("256 are").is_invalid());
    }
}

const MONTHLY: Quota = Quota::fixed_window(9, MONTH);

fn quota_of(number: usize) -> Quota {
    QUOTAS[number % QUOTAS.len()]
}

/// A check that leaves some units, and now and then asks for more than there are at all.
fn reserved(rng: &mut Rng, key: &str, quota: Quota, cost: Range<u64>) -> Check {
    let cost = if rng.u8(..20) == 0 { rng.u64(30..40) } else { rng.u64(cost) };
    check(key, quota, cost).floor(rng.u64(0..4))
}

/// A client's own counter, that of its group, perhaps in shadow, and now and then its own once more.
fn several(rng: &mut Rng, number: usize) -> Vec<Check> {
    let (own, quota, group) = (number.to_string(), quota_of(number), number % 8);
    let mut checks =
        vec![reserved(rng, &own, quota, 0..3), reserved(rng, &format!("group {group}"), quota_of(group), 0..2)];
    if rng.bool() {
        checks[1].mode = Mode::Shadow;
    }
    if rng.u8(..4) == 0 {
        checks.push(check(&own, quota, rng.u64(0..3)));
        checks[0].mode = *rng.choice(&[Mode::Enforce, Mode::Shadow]).expect("a mode");
    }
    checks
}

/// A falling level as Redis keeps it: the last time seen, the amount then, and when its key expires.
#[derive(Debug)]
struct Level {
    time: u64,
    amount: u64,
    expiry: u64,
}

fn level(server: &RedisServer, key: &str) -> Option<Level> {
    let bytes: Vec<u8> = server.ask::<Option<Vec<u8>>>(&["GET", key])?;
    let number = |place: usize| bytes[7 * place..][..7].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    assert_eq!(bytes.len(), 21);
    Some(Level { time: number(0), amount: number(1), expiry: number(2) })
}

/// Checks the step from one state to the next, after a unit was taken.
fn assert_follows(server: &RedisServer, key: &str, before: Option<Level>, quota: Quota) {
    let window = u64::try_from(quota.window().as_micros()).expect("short");
    let after = level(server, key).expect("it was just written");
    let kept = before.map_or(0, |before| before.amount.saturating_sub((after.time - before.time) * quota.limit()));
    assert_eq!(after.amount, kept + window, "{quota}");
    let needed = after.time + after.amount.div_ceil(quota.limit());
    assert!((needed..=needed + window).contains(&after.expiry), "{quota}: {after:?}");
    let expires = 1_000 * server.ask::<u64>(&["PEXPIRETIME", key]);
    // Two milliseconds, and what the script took.
    assert!((after.expiry..=after.expiry + 100_000).contains(&expires), "{quota}: {after:?}, {expires}");
}

#[tokio::test]
async fn levels_fall_by_the_servers_clock_to_the_tick() {
    let quotas = [
        Quota::token_bucket(1_000, Duration::from_secs(5)),
        Quota::token_bucket(7, Duration::from_secs(3)).burst(1_000),
        Quota::leaky_bucket(100, Duration::from_secs(60)).queue(1_000),
    ];
    let server = RedisServer::start();
    let redis = store(&server).await;
    let keys = |quota: usize| (0..4).map(move |key| format!("{quota}-{key}"));
    let name = |key: &str| server.keys().into_iter().find(|name| name.contains(&format!("{{key:{key}}}")));
    for round in 0..60 {
        for (place, quota) in quotas.into_iter().enumerate() {
            let names: Vec<_> = keys(place).map(|key| name(&key)).collect();
            let before: Vec<_> = names.iter().map(|name| level(&server, name.as_deref()?)).collect();
            let checks: Vec<_> = keys(place).map(|key| check(&key, quota, 1)).collect();
            // One check a request, or all in one.
            let requests: Vec<_> = if round % 2 == 0 { checks.chunks(1).collect() } else { vec![&checks[..]] };
            for answer in join_all(requests.into_iter().map(|checks| redis.decide(checks, Ask::default()).wait())).await
            {
                assert!(answer.expect("the server is up").decision.is_allowed());
            }
            for (key, before) in keys(place).zip(before) {
                assert_follows(&server, &name(&key).expect("it was just written"), before, quota);
            }
        }
    }
}

/// The keys, each alone in a request, and all in one.
fn both_ways(keys: [&str; 4], quota: Quota, cost: u64) -> [Vec<Vec<Check>>; 2] {
    let checks = keys.map(|key| check(key, quota, cost));
    [checks.chunks(1).map(<[Check]>::to_vec).collect(), vec![checks.to_vec()]]
}

async fn decide_all(redis: &RedisStore, requests: &[Vec<Check>]) {
    for answer in join_all(requests.iter().map(|checks| redis.decide(checks, Ask::default()).wait())).await {
        assert!(answer.expect("the server is up").decision.is_allowed());
    }
}

#[tokio::test]
async fn looks_write_nothing() {
    let server = RedisServer::start();
    let (redis, keys) = (store(&server).await, ["a", "b", "c", "d"]);
    let values = || server.keys().iter().map(|key| server.ask::<Vec<u8>>(&["GET", key])).collect::<Vec<_>>();
    for quota in
        [Quota::token_bucket(50, Duration::from_secs(60)), Quota::leaky_bucket(50, Duration::from_secs(60)).queue(9)]
    {
        decide_all(&redis, &both_ways(keys, quota, 1)[0]).await;
        let before = values();
        for looks in both_ways(keys, quota, 0) {
            decide_all(&redis, &looks).await;
            assert_eq!(values(), before, "{quota}");
        }
    }
}

#[tokio::test]
async fn a_clock_slower_than_the_servers_shortens_no_life() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE).clock(clock.clone());
    let redis = settings.connect(&server.url()).await.expect("the server was started");
    let quota = Quota::token_bucket(1, Duration::from_secs(2)).burst(100);
    let [each, all] = [both_ways(["a", "b", "c", "d"], quota, 1), both_ways(["e", "f", "g", "h"], quota, 1)];
    for requests in [&each[0], &all[1]] {
        decide_all(&redis, requests).await;
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for requests in [&each[0], &all[1]] {
        decide_all(&redis, requests).await;
    }
    for key in server.keys() {
        let left: i64 = server.ask(&["PTTL", &key]);
        assert!(left > 3_000, "{key}: its two units return in 4 s, but it lives for {left} ms");
    }
}

/// Units and parts of a large level, or the level of another, of a window in ticks; in units.
fn units(bytes: &[u8], window: u64) -> u64 {
    let number = |place: usize| bytes[place..][..7].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if bytes.len() == 21 {
        return number(7) / window;
    }
    assert_eq!((bytes.len(), bytes[0]), (29, 255));
    assert!(
        number(22) < window && u128::from(number(8)) * u128::from(window) + u128::from(number(22)) >= 1 << 52,
        "a level has one form"
    );
    number(8)
}

const LONGEST: Duration = Duration::from_secs(69 * 365 * 86_400);
const LARGE: Quota = Quota::token_bucket(1_000_000_000_000, LONGEST);
const SMALL: Quota = Quota::token_bucket(1_000, LONGEST);

/// Takes and refunds large and small amounts of a few keys in one call; some hundred units return meanwhile.
async fn compare_large(redis: &RedisStore, memory: &MemoryStore, rng: &mut Rng) {
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..24 {
        let key = rng.u8(..4).to_string();
        let (quota, cost) = [(LARGE, 1), (LARGE, rng.u64(..1 << 38)), (SMALL, 1), (SMALL, 0)][rng.usize(..4)];
        if rng.u8(..6) == 0 {
            let change = Change::Refund(if rng.bool() { u64::MAX } else { 1 });
            let refund = redis.adjust(&counter(&key, LARGE), change).wait();
            found.push(async { refund.await.map(|_| None) }.boxed());
            memory.adjust(&counter(&key, LARGE), change).wait().await.expect("memory is always there");
        }
        let checks = [check("all", LARGE, 1), check(&key, quota, cost)];
        expected.push(memory.decide(&checks, Ask::default()).wait().await.expect("memory is always there"));
        let decided = redis.decide(&checks, Ask::default()).wait();
        found.push(async { decided.await.map(Some) }.boxed());
    }
    // In the order in which they are polled first.
    let found = join_all(found).await.into_iter().filter_map(|found| found.expect("the server is up"));
    for (found, expected) in found.zip(expected) {
        assert_eq!(found.decision.is_allowed(), expected.decision.is_allowed());
        for (one, other) in found.decision.outcomes().iter().zip(expected.decision.outcomes()) {
            assert!(one.remaining().abs_diff(other.remaining()) < 100_000, "{one:?} {other:?}");
        }
    }
}

#[tokio::test]
async fn large_and_small_levels_follow_each_other_in_one_call() {
    let ticks = u64::try_from(LONGEST.as_millis()).expect("within the bounds");
    for with_functions in [false, true] {
        let (server, memory, mut rng) = (RedisServer::start(), MemoryStore::new(), Rng::with_seed(7));
        let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE);
        let settings = if with_functions { settings.functions() } else { settings };
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        let mut sizes = [0; 2];
        for _ in 0..40 {
            compare_large(&redis, &memory, &mut rng).await;
            for key in server.keys() {
                let bytes: Vec<u8> = server.ask(&["GET", &key]);
                assert!(units(&bytes, ticks) <= 2 * LARGE.limit(), "{bytes:?}");
                sizes[usize::from(bytes.len() == 29)] += 1;
            }
            server.assert_every_key_expires();
        }
        assert!(sizes.iter().all(|size| *size > 10), "{sizes:?}");
    }
}
