//! Bans of keys in Redis: in the call of the decision, by scripts and functions, for as long as they should be.

use std::time::Duration;

use futures::future::join_all;
use tollgate::store::{Ask, BanCheck, Change, Check, Mode, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Limiter, Quota, RedisStore, Rule};

use super::stores::{FIFTY, PATIENCE, patient_store};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);
const QUOTA: Quota = Quota::fixed_window(1, Duration::from_secs(30 * 86_400));

fn banning(key: &str, ban: Ban) -> Check {
    check(key, QUOTA, 1).ban(BanCheck::new(ban))
}

async fn decide(store: &RedisStore, checks: &[Check]) -> Decision {
    store.decide(checks, Ask::default()).wait().await.expect("the server is there").decision
}

/// How often a command was called.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number"))
}

#[tokio::test]
async fn a_decision_with_a_ban_is_one_call_whatever_becomes_of_it() {
    let server = RedisServer::start();
    let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE);
    let store = settings.connect(&server.url()).await.unwrap();
    let ban = Ban::new(3, HOUR, HOUR);
    // The script is loaded by the first call that needs it.
    let _ = decide(&store, &[banning("bob", ban), check("bob", FIFTY, 1)]).await;
    let before = server.scripts();
    for request in 0..9 {
        let decision = decide(&store, &[banning("ada", ban), check("ada", FIFTY, 1)]).await;
        assert_eq!((decision.is_allowed(), decision.is_banned()), (request == 0, request >= 3), "{request}");
    }
    assert_eq!(server.scripts(), before + 9);
    assert_eq!(calls(&server, "set"), 2 + 2 + 3, "units of the two that were admitted, and three strikes");
}

#[tokio::test]
async fn functions_ban_as_scripts_do_and_see_their_bans() {
    let server = RedisServer::start();
    let functions = RedisStore::builder().functions().timeout(PATIENCE).connect(&server.url()).await.unwrap();
    // A ban that another store lifts stays in a deny cache for a moment.
    let scripts = RedisStore::builder().without_deny_cache().timeout(PATIENCE).connect(&server.url()).await.unwrap();
    let ban = Ban::new(2, HOUR, HOUR);
    for (store, banned) in [(&functions, false), (&scripts, false), (&functions, true), (&scripts, true)] {
        assert_eq!(decide(store, &[banning("ada", ban)]).await.is_banned(), banned);
    }
    functions.adjust(&counter("ada", QUOTA), Change::Lift).wait().await.unwrap();
    assert!(!decide(&scripts, &[banning("ada", ban)]).await.is_banned());
    let again = functions.adjust(&counter("ada", QUOTA), Change::Strike(ban)).wait().await.unwrap();
    // The time is the server's, of which a ban counts whole milliseconds.
    let left = again.banned_for.expect("it is banned again");
    assert!(again.units == 1 && left <= HOUR && left + Duration::from_millis(1) > HOUR, "{again:?}");
}

#[tokio::test]
async fn requests_with_and_without_bans_share_calls() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let ban = Ban::new(40, HOUR, HOUR);
    let requests: Vec<Vec<Check>> = (0..120)
        .map(|request| match request % 4 {
            0 => vec![check("bob", FIFTY, 1)],
            1 => vec![banning("ada", ban)],
            2 => vec![check("bob", FIFTY, 1), banning("ada", ban)],
            _ => vec![banning("ada", ban).mode(Mode::Shadow)],
        })
        .collect();
    let before = server.scripts();
    let decided = join_all(requests.iter().map(|request| decide(&store, request))).await;
    assert!(server.scripts() < before + 100);
    let banned = decided.iter().zip(&requests).filter(|(decision, checks)| checks.len() == 1 && decision.is_banned());
    assert!(banned.count() > 5, "after one that was admitted and 39 strikes");
    // 30 of those without a ban, and at most the one that was admitted for both.
    let left = decide(&store, &[check("bob", FIFTY, 0)]).await.outcomes()[0].remaining();
    assert!((19..=20).contains(&left), "{left}");
}

#[tokio::test]
async fn every_key_of_a_ban_expires_no_sooner_than_it_matters() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = RedisStore::builder().without_deny_cache().clock(clock.clone()).timeout(PATIENCE);
    let store = settings.connect(&server.url()).await.unwrap();
    let life = || Duration::from_millis(server.ask::<u64>(&["PTTL", "tollgate:{key:ada}:policy:1b"]));
    let grows = Ban::new(2, HOUR, 2 * HOUR).backoff(2.0, 10 * HOUR);
    let _ = decide(&store, &[banning("ada", grows)]).await;
    for hours in [1, 12] {
        let _ = decide(&store, &[banning("ada", grows)]).await;
        let expected = HOUR * hours;
        assert!(life() <= expected + Duration::from_millis(2) && life() + Duration::from_secs(60) > expected);
        server.assert_every_key_expires();
    }
    let taken = store.decide(&[check("ada", QUOTA, 0)], Ask::default()).wait().await.unwrap();
    store.settle(taken.receipt, &[Settlement::new(0, Change::Lift)]).wait().await.unwrap();
    assert_eq!(server.keys().len(), 1, "only the counter is left");
}

/// Some of these refusals are cached: the last one before a ban is not.
#[tokio::test]
async fn the_nth_refusal_through_a_default_store_bans() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    for after in [1, 2, 3, 10] {
        let rule = Rule::new("login", QUOTA).ban(Ban::new(after, HOUR, HOUR));
        let limiter = Limiter::new(store.clone(), [rule]).timeout(PATIENCE);
        let key = Key::new("user", after.to_string());
        for request in 0..=after + 3 {
            let decision = limiter.check(&key).await.expect("the server is there");
            let expected = (request == 0, request >= after);
            assert_eq!((decision.is_allowed(), decision.is_banned()), expected, "refusal {request}, {after} ban");
        }
    }
    assert!(store.denied_from_cache() > 0);
}

/// A look before a lookup strikes in Redis as in memory.
#[cfg(all(feature = "axum", feature = "lookup"))]
#[tokio::test]
async fn looks_before_lookups_strike_in_redis_as_in_memory() {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;
    use http::Request;
    use tollgate::key::Lookup;
    use tollgate::policy::TierLookup;
    use tollgate::{MemoryStore, Policy, RateLimitLayer, key};
    use tollgate_test::send;

    let server = RedisServer::start();
    let quotas = [
        Quota::fixed_window(2, HOUR),
        Quota::token_bucket(2, HOUR),
        Quota::sliding_log(2, HOUR),
        Quota::sliding_window(2, HOUR),
        Quota::leaky_bucket(2, HOUR).queue(1).nodelay(2),
    ];
    for (place, quota) in quotas.into_iter().enumerate() {
        for cost in [1, 2] {
            for shadow in [false, true] {
                let run = async |layer: RateLimitLayer| {
                    let sent = send(&layer, 9, |place| {
                        let mut request = Request::new(String::new());
                        request.headers_mut().insert("x-key", place.into());
                        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
                        request
                    });
                    let sent = sent.await;
                    let told = |sent: &tollgate_test::TestResponse| {
                        let decision = sent.decision().expect("a decision");
                        let each: Vec<_> =
                            decision.outcomes().iter().map(|one| (one.is_allowed(), one.is_banned())).collect();
                        (sent.is_admitted(), decision.is_banned(), each)
                    };
                    sent.iter().map(told).collect::<Vec<_>>()
                };
                let policies = || {
                    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
                    let login = Policy::new("login", quota).cost(cost).key(key::peer_ip()).ban(Ban::new(3, HOUR, HOUR));
                    let login = if shadow { login.shadow() } else { login };
                    let by_key =
                        Policy::new("key", Quota::fixed_window(100, HOUR)).key(key::header("x-key")).tier_lookup(tiers);
                    [login, by_key]
                };
                let settings = RedisStore::builder().without_deny_cache().timeout(PATIENCE);
                let redis = settings.prefix(format!("p{place}{cost}{shadow}")).connect(&server.url()).await.unwrap();
                let in_redis = run(RateLimitLayer::composite(redis).policies(policies()).expose_decisions()).await;
                let in_memory =
                    run(RateLimitLayer::composite(MemoryStore::new()).policies(policies()).expose_decisions()).await;
                assert_eq!(in_redis, in_memory, "{quota} {cost} {shadow}");
                let banned = in_redis.iter().filter(|(.., each)| each[0].1).count() as u64;
                assert_eq!(banned, 9 - 2 / cost - 2, "{quota} {cost} {shadow}: {in_redis:?}");
            }
        }
    }
}

/// What a store cannot do is an error when policies are given to a layer: each request of this one would fail.
#[cfg(feature = "axum")]
#[tokio::test]
async fn more_bans_than_one_decision_may_have_are_an_error_when_the_layer_is_built() {
    use tollgate::{Policy, RateLimitLayer, key};

    let store = RedisStore::builder().lazy().connect("redis://127.0.0.1:1").await.expect("nothing is sent");
    let policies = |many: usize| {
        (0..many).map(|number| {
            let policy = Policy::new(&format!("p{number}"), Quota::fixed_window(9, HOUR)).key(key::peer_ip());
            policy.ban(Ban::new(3, HOUR, HOUR))
        })
    };
    let build = |many| RateLimitLayer::composite(store.clone()).try_policies(policies(many));
    assert!(build(127).is_ok(), "254 checks");
    let Ok(layer) = build(128) else { return };
    let sent = tollgate_test::send(&layer, 1, |_| {
        let mut request = http::Request::new(String::new());
        let peer = std::net::SocketAddr::from(([10, 0, 0, 1], 4_711));
        request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        request
    });
    let source = sent.await[0].decision().map(Decision::source);
    panic!("256 checks: each decision is refused as invalid, which is not logged, and {source:?} decides");
}
