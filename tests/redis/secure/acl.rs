//! A Redis user who may do what the crate needs, and nothing else.

use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Ask, Change, RedisStoreBuilder, Store, StoreDecision};
use tollgate::{Error, Quota, RedisStore};
use tollgate_ratio::{CounterId, Offered, Report, Tally};

use crate::stores::{MONTH, first_remaining, settings, settle};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

const QUOTAS: [Quota; 5] = [
    Quota::token_bucket(50, MONTH),
    Quota::fixed_window(50, MONTH),
    Quota::sliding_window(50, MONTH),
    Quota::sliding_log(50, MONTH),
    Quota::leaky_bucket(50, MONTH).queue(49),
];

/// What scripts take, as the documentation of `RedisStoreBuilder::connect` says.
pub(crate) const BY_SCRIPTS: [&str; 8] =
    ["~tollgate:*", "+evalsha", "+eval", "+time", "+mget", "+set", "+setrange", "+del"];
/// What functions take.
const BY_FUNCTIONS: [&str; 8] =
    ["~tollgate:*", "+fcall", "+function|load", "+time", "+mget", "+set", "+setrange", "+del"];

/// What a tally takes, besides the prefix and the time.
const OF_A_TALLY: [&str; 7] = ["+eval", "+evalsha", "+hmget", "+hset", "+hincrby", "+hlen", "+pexpire"];

/// Lets a user do what these rules say, and tells how to connect as that user.
fn user(server: &RedisServer, rules: &[&str]) -> String {
    let (): () = server.ask(&[&["ACL", "SETUSER", "limiter", "reset", "on", ">horse"], rules].concat());
    server.url().replace("redis://", "redis://limiter:horse@")
}

async fn take(store: &RedisStore, quota: Quota, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check("ada", quota, cost)], Ask::default()).wait().await
}

/// All that a store is asked for over one quota; returns what is left in between.
async fn use_all(server: &RedisServer, store: &RedisStore, quota: Quota) -> Result<[u64; 4], Error> {
    let left = async || Ok::<_, Error>(first_remaining(&take(store, quota, 0).await?.decision));
    drop(take(store, quota, 10).await?);
    let decided = take(store, quota, 10).await?;
    assert!(!take(store, quota, 51).await?.decision.is_allowed(), "{quota}");
    drop(settle(store, decided.receipt, Change::Refund(4)));
    let refunded = left().await?;
    store.adjust(&counter("ada", quota), Change::Charge(4)).wait().await?;
    let charged = left().await?;
    let (): () = server.ask(&["SCRIPT", "FLUSH"]);
    let (): () = server.ask(&["FUNCTION", "FLUSH"]);
    let flushed = first_remaining(&take(store, quota, 1).await?.decision);
    store.adjust(&counter("ada", quota), Change::Reset).wait().await?;
    Ok([refunded, charged, flushed, left().await?])
}

/// Every operation over every algorithm, alone and together, and after the connection was closed.
async fn all_operations(server: &RedisServer, settings: RedisStoreBuilder, url: &str) -> Result<(), Error> {
    let store = settings.connect(url).await?;
    for quota in QUOTAS {
        assert_eq!(use_all(server, &store, quota).await?, [34, 30, 29, 50], "{quota}");
    }
    let checks = QUOTAS.map(|quota| check("bob", quota, 1));
    drop(store.decide(&checks, Ask::default()).wait().await?);
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    let (mut again, mut tries) = (store.decide(&checks, Ask::default()).wait().await, 0);
    while again.is_err() && tries < 100 {
        (again, tries) = (store.decide(&checks, Ask::default()).wait().await, tries + 1);
    }
    again.map(drop)
}

/// Checks that all that is done needs each of these rules, and no other; without one no key stays for ever.
async fn assert_least(rules: &[&str], all: impl AsyncFn(&RedisServer, &str) -> Result<(), Error>) {
    let server = RedisServer::start();
    let url = user(&server, rules);
    all(&server, &url).await.expect("the rules are enough");
    for rule in rules {
        let fewer: Vec<&str> = rules.iter().filter(|kept| *kept != rule).copied().collect();
        let (): () = server.ask(&["FLUSHALL"]);
        let (): () = server.ask(&["SCRIPT", "FLUSH"]);
        let url = user(&server, &fewer);
        // Valkey begins with a capital letter.
        let told = format!("{:?}", all(&server, &url).await.expect_err("each rule is needed")).to_lowercase();
        let is_refused = told.contains("no permissions to") || told.contains("can't run this command");
        assert!(is_refused, "without {rule}: {told}");
        server.assert_every_key_expires();
    }
}

#[tokio::test]
async fn a_user_with_the_documented_rules_can_do_all_by_scripts_and_by_functions_and_none_of_them_is_idle() {
    assert_least(&BY_SCRIPTS, async |server, url| all_operations(server, settings(), url).await).await;
    assert_least(&BY_FUNCTIONS, async |server, url| all_operations(server, settings().functions(), url).await).await;
}

#[tokio::test]
async fn a_tally_takes_some_rules_more_none_of_which_is_idle_and_without_one_leaves_no_key_forever() {
    let rules = [&["~tollgate:*", "+time"], &OF_A_TALLY[..]].concat();
    // The second report finds what the first has added.
    let report_twice = async |_: &RedisServer, url: &str| {
        let store = settings().connect(url).await?;
        let offered = Offered::new(CounterId::from_bytes([7; CounterId::LENGTH]), 1, 1, 1);
        for _ in 0..2 {
            drop(store.report(Report::new(std::time::Duration::from_secs(60), 0).counters([offered])).await?);
        }
        Ok(())
    };
    assert_least(&rules, report_twice).await;
}

#[tokio::test]
async fn a_pool_whose_connections_others_use_too_and_a_database_in_the_url_take_rules_more() {
    let server = RedisServer::start();
    let url = user(&server, &BY_SCRIPTS);
    settings().connect(&format!("{url}/3")).await.expect_err("the user may not select");
    user(&server, &[&BY_SCRIPTS[..], &["+select"]].concat());
    settings().connect(&format!("{url}/3")).await.expect("the user may select");
    let url = user(&server, &[&BY_SCRIPTS[..], &["+ping", "+unwatch"]].concat());
    let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
    drop(pool.get().await.expect("the user may connect"));
    let store = settings().from_pool(pool).expect("the settings are valid");
    assert!(take(&store, QUOTAS[0], 1).await.expect("a connection is taken").decision.is_allowed());
}

#[test]
fn the_rules_are_those_that_the_documentation_has() {
    let documented = include_str!("../../../src/store/redis/builder/connect.rs");
    for rules in [&BY_SCRIPTS[..], &BY_SCRIPTS[1..3], &BY_FUNCTIONS[1..3], &["+ping", "+unwatch"]] {
        let rules = rules.join(" ");
        assert!(documented.contains(&rules), "{rules}");
    }
    let of_a_tally = include_str!("../../../crates/tollgate-ratio/src/redis.rs");
    assert!(of_a_tally.contains(&OF_A_TALLY.join(" ")));
}

#[tokio::test]
async fn the_rules_allow_nothing_beyond_the_prefix_and_who_lacks_one_is_told_the_command() {
    let server = RedisServer::start();
    let url = user(&server, &BY_SCRIPTS);
    settings().prefix("others").connect(&url).await.expect("loading is allowed");
    let store = settings().prefix("others").connect(&url).await.unwrap();
    let error = take(&store, QUOTAS[0], 1).await.expect_err("the key is another's");
    assert!(error.is_store() && format!("{error:#}").to_lowercase().contains("permission"), "{error:#}");
    let error = settings().connect(&user(&server, &BY_SCRIPTS[..2])).await.expect_err("it may not load");
    assert!(error.is_connection() && format!("{error:#}").contains("cannot use Redis"), "{error:#}");
    let cause = std::error::Error::source(&error).map(|cause| format!("{cause:?}")).unwrap_or_default();
    assert!(cause.contains("eval"), "{cause}");
}
