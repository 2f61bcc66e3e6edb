//! A Redis user who may do what the crate needs, and nothing else.

use std::time::Duration;

use tollgate::deadpool_redis::redis::{Client, cmd};
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Ask, Change, RedisStoreBuilder, Settlement, Store, StoreDecision};
use tollgate::{Error, Quota, RedisStore};
use tollgate_ratio::{CounterId, Offered, Report, Tally};

use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

const WINDOW: Duration = Duration::from_secs(86_400);
const QUOTAS: [Quota; 5] = [
    Quota::token_bucket(50, WINDOW),
    Quota::fixed_window(50, WINDOW),
    Quota::sliding_window(50, WINDOW),
    Quota::sliding_log(50, WINDOW),
    Quota::leaky_bucket(50, WINDOW).queue(49),
];

/// What scripts take, as the documentation of `RedisStoreBuilder::connect` says.
const BY_SCRIPTS: [&str; 8] = ["~tollgate:*", "+evalsha", "+eval", "+time", "+mget", "+set", "+setrange", "+del"];
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

fn settings() -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache().timeout(Duration::from_secs(10))
}

async fn take(store: &RedisStore, quota: Quota, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check("ada", quota, cost)], Ask::default()).wait().await
}

async fn left(store: &RedisStore, quota: Quota) -> Result<u64, Error> {
    Ok(take(store, quota, 0).await?.decision.outcomes()[0].remaining())
}

/// What did not come out as it should.
fn wrong(what: &str, quota: Quota) -> Error {
    Error::store(format!("{what} of {quota}"), std::io::Error::other("no error was returned"))
}

/// All that a store is asked for over one quota. Settlements are told from what is left.
async fn use_all(server: &RedisServer, store: &RedisStore, quota: Quota) -> Result<(), Error> {
    let expect = |fits: bool, what: &str| if fits { Ok(()) } else { Err(wrong(what, quota)) };
    expect(take(store, quota, 10).await?.decision.is_allowed(), "the first take")?;
    let decided = take(store, quota, 10).await?;
    expect(!take(store, quota, 51).await?.decision.is_allowed(), "a refusal")?;
    drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(4))]));
    expect(left(store, quota).await? == 34, "a refund")?;
    store.adjust(&counter("ada", quota), Change::Charge(4)).wait().await?;
    expect(left(store, quota).await? == 30, "a charge")?;
    let (): () = server.ask(&["SCRIPT", "FLUSH"]);
    let (): () = server.ask(&["FUNCTION", "FLUSH"]);
    expect(take(store, quota, 1).await?.decision.is_allowed(), "a take after a flush")?;
    store.adjust(&counter("ada", quota), Change::Reset).wait().await?;
    expect(left(store, quota).await? == 50, "a reset")
}

/// Every operation over every algorithm, alone and together, and after the connection was closed.
async fn all_operations(server: &RedisServer, settings: RedisStoreBuilder, url: &str) -> Result<(), Error> {
    let store = settings.connect(url).await?;
    for quota in QUOTAS {
        use_all(server, &store, quota).await?;
    }
    let checks = QUOTAS.map(|quota| check("bob", quota, 1));
    drop(store.decide(&checks, Ask::default()).wait().await?);
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    for _ in 0..100 {
        if store.decide(&checks, Ask::default()).wait().await.is_ok() {
            return Ok(());
        }
    }
    Err(wrong("a decision after the connection was closed", QUOTAS[0]))
}

async fn assert_least(rules: &[&str], settings: impl Fn() -> RedisStoreBuilder) {
    let server = RedisServer::start();
    let url = user(&server, rules);
    all_operations(&server, settings(), &url).await.expect("the rules are enough");
    for rule in rules {
        let fewer: Vec<&str> = rules.iter().filter(|kept| *kept != rule).copied().collect();
        let (): () = server.ask(&["FLUSHALL"]);
        let url = user(&server, &fewer);
        let error = all_operations(&server, settings(), &url).await.expect_err("each rule is needed");
        let told = format!("{error:?}");
        let refused = told.contains("no permissions to") || told.contains("can't run this command");
        assert!(refused, "without {rule}: {told}");
    }
}

#[tokio::test]
async fn a_user_with_the_documented_rules_can_do_all_by_scripts_and_by_functions_and_none_of_them_is_idle() {
    assert_least(&BY_SCRIPTS, settings).await;
    assert_least(&BY_FUNCTIONS, || settings().functions()).await;
}

/// Reports twice, so that the second one finds what the first has added.
async fn report(settings: RedisStoreBuilder, url: &str) -> Result<(), Error> {
    let store = settings.connect(url).await?;
    let offered = Offered::new(CounterId::from_bytes([7; CounterId::LENGTH]), 1, 1, 1);
    for _ in 0..2 {
        drop(store.report(Report::new(Duration::from_secs(60), 0).counters([offered])).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_tally_takes_some_rules_more_none_of_which_is_idle_and_without_one_leaves_no_key_forever() {
    let server = RedisServer::start();
    let rules = [&["~tollgate:*", "+time"], &OF_A_TALLY[..]].concat();
    let url = user(&server, &rules);
    report(settings(), &url).await.expect("the rules are enough");
    for rule in &rules {
        let fewer: Vec<&str> = rules.iter().filter(|kept| *kept != rule).copied().collect();
        let (): () = server.ask(&["FLUSHALL"]);
        let (): () = server.ask(&["SCRIPT", "FLUSH"]);
        let url = user(&server, &fewer);
        let error = report(settings(), &url).await.expect_err("each rule is needed");
        assert!(error.is_store() || error.is_connection(), "without {rule}: {error:#}");
        server.assert_every_key_expires();
    }
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
    user(&server, &BY_SCRIPTS);
    let mut connection = Client::open(url).unwrap().get_connection().unwrap();
    for command in ["FLUSHALL", "KEYS *", "CONFIG GET dir", "GET tollgate:x", "ACL WHOAMI", "SCRIPT FLUSH"] {
        let mut words = command.split(' ');
        let refused = cmd(words.next().expect("a command")).arg(words.collect::<Vec<_>>()).exec(&mut connection);
        let told = refused.expect_err("it is not allowed").to_string();
        assert!(told.to_lowercase().contains("permission"), "{command}: {told}");
    }
}
