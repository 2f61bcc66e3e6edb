//! What is in Redis of each algorithm: processes of other versions read and write it, too.

use std::time::Duration;

use tollgate::store::Deadline;
use tollgate::{Algorithm, Quota, RedisStore, Store};

use super::rows::{S, us};
use crate::support::checks::check;
use crate::support::clock::ManualClock;
use crate::support::server::RedisServer;

/// Of each quota the end of the key, and the state: two units taken after 70.000007 s, and one 10 s later.
const KEPT: [(Quota, &str, &str); 6] = [
    (Quota::fixed_window(5, us(60 * S)), "1f60000000u", "a76108787000000000000003"),
    (Quota::sliding_log(5, us(60 * S)), "1l60000000u", "0a7611b8b40711201d8711201d8711b8b407"),
    (Quota::sliding_window(5, us(60 * S)), "1s60000000u", "060a7611b8b407000000000003000000000000"),
    (Quota::token_bucket(5, us(60 * S)), "1t60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (Quota::leaky_bucket(5, us(60 * S)).queue(4), "1q60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (Quota::token_bucket(5, us(3_600 * S)), "1t3600000m", "00018be4e1b88000000000a4083000018be52e78f0"),
];

#[tokio::test]
async fn keys_and_states_in_redis_are_what_they_always_were() {
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings =
        RedisStore::builder().without_deny_cache().with_clock(clock.reader()).budget(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    for (quota, key, state) in KEPT {
        for (now, cost) in [(70 * S + 7, 2), (80 * S + 7, 1)] {
            clock.set(now);
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

#[test]
fn every_algorithm_has_its_table() {
    let tables = include_str!("tables.rs");
    for (name, algorithm) in Algorithm::ALL {
        // Another name of the same algorithm has no table of its own.
        let is_listed = tables.lines().any(|line| line == format!("mod {name};"));
        assert_eq!(is_listed, *name == algorithm.name(), "tests/algorithms/tables.rs, and {name}.rs beside it: {name}");
    }
}
