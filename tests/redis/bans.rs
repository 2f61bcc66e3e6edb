//! Bans of keys in Redis: in the call of the decision, by scripts and functions, for as long as they should be.

use std::time::Duration;

use tollgate::store::{BanCheck, Change, Check};
use tollgate::{Ban, Key, Limiter, Quota, Rule};

use super::stores::{FIFTY, MONTH, PATIENCE, connect, decide, on_clock, patient_store, settings, settle};
use crate::support::checks::check;
use crate::support::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);
const QUOTA: Quota = Quota::fixed_window(1, MONTH);

fn banning(key: &str, ban: Ban) -> Check {
    check(key, QUOTA, 1).ban(BanCheck::new(ban))
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
    let store = connect(settings(), &server).await;
    let ban = Ban::new(3, HOUR, HOUR);
    // The script is loaded by the first call that needs it.
    let _ = decide(&store, &[banning("bob", ban), check("bob", FIFTY, 1)]).await;
    let before = server.scripts();
    for request in 0..9 {
        let decision = decide(&store, &[banning("ada", ban), check("ada", FIFTY, 1)]).await.decision;
        assert_eq!((decision.is_allowed(), decision.is_banned()), (request == 0, request >= 3), "{request}");
    }
    assert_eq!(server.scripts(), before + 9);
    assert_eq!(calls(&server, "set"), 2 + 2 + 3, "units of the two that were admitted, and three strikes");
}

#[tokio::test]
async fn every_key_of_a_ban_expires_no_sooner_than_it_matters() {
    let (server, _, store) = on_clock().await;
    let life = || Duration::from_millis(server.ask::<u64>(&["PTTL", "tollgate:{key:ada}:policy:1b"]));
    let grows = Ban::new(2, HOUR, 2 * HOUR).backoff(2.0, 10 * HOUR);
    let _ = decide(&store, &[banning("ada", grows)]).await;
    for hours in [1, 12] {
        let _ = decide(&store, &[banning("ada", grows)]).await;
        let expected = HOUR * hours;
        assert!(life() <= expected + Duration::from_millis(2) && life() + Duration::from_secs(60) > expected);
        server.assert_every_key_expires();
    }
    let taken = decide(&store, &[check("ada", QUOTA, 0)]).await;
    settle(&store, taken.receipt, Change::Lift).wait().await.expect("the server is up");
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
