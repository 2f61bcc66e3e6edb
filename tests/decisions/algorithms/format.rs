//! What is in Redis of each algorithm: processes of other versions read and write it, too.

use std::time::Duration;

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{BanCheck, Deadline};
use tollgate::test_util::ManualClock;
use tollgate::{Algorithm, Ban, Quota, RedisStore, Store};

use crate::support::checks::check;
use crate::support::server::RedisServer;

const S: u64 = 1_000_000;

/// When the states below were written first.
const START: Duration = Duration::from_secs(656 * 30 * 86_400);

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Of each quota the end of the key, and the state: two units taken after 70.000007 s, and one 10 s later.
const KEPT: [(Quota, &str, &str); 7] = [
    (Quota::fixed_window(5, us(60 * S)), "1f60000000u", "a76108787000000000000003"),
    (Quota::sliding_log(5, us(60 * S)), "1l60000000u", "0a7611b8b40711201d8711201d8711b8b407"),
    (Quota::sliding_window(5, us(60 * S)), "1s60000000u", "060a7611b8b407000000000003000000000000"),
    (Quota::token_bucket(5, us(60 * S)), "1t60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (Quota::leaky_bucket(5, us(60 * S)).queue(4), "1q60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (Quota::concurrency(5).slot_life(us(60 * S)), "1h60000000u", "060a7611201d8700000002060a7611b8b40700000001"),
    (Quota::token_bucket(5, us(3_600 * S)), "1t3600000m", "00018be4e1b88000000000a4083000018be52e78f0"),
];

#[tokio::test]
async fn keys_and_states_in_redis_are_what_they_always_were() {
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().without_deny_cache().with_clock(clock.clone()).budget(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    for (quota, key, state) in KEPT {
        for (now, cost) in [(70 * S + 7, 2), (80 * S + 7, 1)] {
            clock.set(START + us(now));
            let decided = store.decide(&[check("ada", quota, cost)], Deadline::none()).wait().await;
            assert!(decided.expect("the server is there").decision.is_allowed(), "{quota}");
        }
        let [found] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
        let bytes: Vec<u8> = server.ask(&["GET", found]);
        let hex: String = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!((&**found, &*hex), (&*format!("tollgate:{{key:ada}}:policy:{key}"), state), "{quota}");
        let _: u64 = server.ask(&["DEL", found]);
    }
}

/// The states of a ban: two strikes, the first after 70 s, and a ban that began after 80 s.
const BANS: [&str; 2] = [
    "000000000000000000000000000000018be4e1917000000000000002",
    "00018be4e33f20000000000186a00000000000000000000000000000",
];

#[tokio::test]
async fn bans_in_redis_are_what_they_always_were() {
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().without_deny_cache().with_clock(clock.clone()).budget(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    let ban = Ban::new(3, us(60 * S), us(100 * S));
    let check = check("ada", Quota::fixed_window(1, us(60 * S)), 2).ban(BanCheck::new(ban));
    for (times, now, state) in [(2, 70, BANS[0]), (1, 80, BANS[1])] {
        clock.set(START + us(now * S));
        for _ in 0..times {
            let decided = store.decide(std::slice::from_ref(&check), Deadline::none()).wait().await;
            assert!(!decided.expect("the server is there").decision.is_allowed());
        }
        let [found] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
        let bytes: Vec<u8> = server.ask(&["GET", found]);
        let hex: String = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!((&**found, &*hex), ("tollgate:{key:ada}:policy:1b", state));
    }
    for foreign in [&["SET", "KEY", "1"][..], &["SET", "KEY", "as long as a ban, 28 bytes ..."]] {
        let command: Vec<&str> =
            foreign.iter().map(|word| if *word == "KEY" { "tollgate:{key:ada}:policy:1b" } else { *word }).collect();
        let _: Value = server.ask(&command);
        let decided = store.decide(std::slice::from_ref(&check), Deadline::none()).wait().await;
        let decision = decided.expect("the server is there").decision;
        assert!(!decision.is_allowed() && !decision.is_banned(), "{foreign:?} is a new state");
    }
}

/// What others may have put under a key of ours.
const FOREIGN: [&[&[&str]]; 9] = [
    &[&["SET", "KEY", "1"]],
    &[&["SET", "KEY", ""]],
    &[&["SET", "KEY", "as 1 cohort"]],
    &[&["SET", "KEY", "\u{6}1234567890\u{5}1234567890"]],
    &[&["SET", "KEY", "twelve bytes"]],
    &[&["SET", "KEY", "as long as a window"]],
    &[&["SET", "KEY", "as long as a bucket's"]],
    &[&["DEL", "KEY"], &["HSET", "KEY", "tokens", "1"]],
    &[&["DEL", "KEY"], &["RPUSH", "KEY", "1", "2"]],
];

#[tokio::test]
async fn a_foreign_value_is_a_new_state() {
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().without_deny_cache().with_clock(clock).budget(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    for (quota, ..) in KEPT {
        let take = async |cost| {
            let decided = store.decide(&[check("ada", quota, cost)], Deadline::none()).wait().await;
            decided.expect("the server is there").decision
        };
        let new = take(2).await;
        for foreign in FOREIGN {
            let [key] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
            for command in foreign {
                let command: Vec<&str> = command.iter().map(|word| if *word == "KEY" { key } else { *word }).collect();
                let _: Value = server.ask(&command);
            }
            assert_eq!(take(2).await.outcomes(), new.outcomes(), "{quota} after {foreign:?}");
        }
        let _: String = server.ask(&["FLUSHALL"]);
    }
}

#[test]
fn every_algorithm_has_its_group_of_cases() {
    let suite = include_str!("../../../src/test_util/conformance/mod.rs");
    for (name, algorithm) in Algorithm::ALL {
        // Another name of the same algorithm has no cases of its own.
        let is_listed = suite.contains(&format!("cases: {name}::CASES"));
        assert_eq!(is_listed, *name == algorithm.name(), "src/test_util/conformance: {name}");
    }
}
