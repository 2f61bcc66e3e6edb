//! What is in Redis: keys that no client chooses, and values that others may have written.

use std::time::Duration;

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{Change, Check, Counter};
use tollgate::{Key, Quota};
use tracing::Level;

use super::stores::{FIFTY, adjust, decide, first_remaining, on_clock, patient_store, remaining, take};
use crate::support::checks::check;
use crate::support::log::Log;
use crate::support::server::RedisServer;

const MINUTE: Duration = Duration::from_secs(60);

fn quotas() -> Vec<Quota> {
    let of = [Quota::fixed_window, Quota::token_bucket, Quota::sliding_window, Quota::sliding_log];
    let others = [Quota::concurrency(50), Quota::leaky_bucket(50, MINUTE).queue(9)];
    of.into_iter().map(|of| of(50, MINUTE)).chain(others).collect()
}

const HOSTILE: [&[u8]; 19] = [
    b"",
    b"{",
    b"}",
    b"{}",
    b"}{",
    b"a}:policy:1t60u",
    b"a\r\nFLUSHALL\r\n",
    b"\0",
    b" ",
    b"%7B",
    b"#",
    b"*",
    b"\xff\xfe",
    b"\xc3\x28",
    "ключ".as_bytes(),
    "🔑".as_bytes(),
    b"a|b",
    b"a:b",
    b"\x1b[2J",
];

#[tokio::test]
async fn hostile_values_have_keys_of_their_own_that_are_bounded_and_have_one_pair_of_braces() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let mut values: Vec<Vec<u8>> = HOSTILE.map(<[u8]>::to_vec).into();
    values.extend((0..3).map(|last| [vec![b'x'; 1 << 20], vec![last]].concat()));
    values.extend([vec![b'{'; 64], vec![b'{'; 65], vec![b'x'; 64], vec![b'x'; 65]]);
    for value in &values {
        for key in [Key::new("k{}", value), Key::hashed("h{}", value)] {
            let check = Check::new(Counter::new("policy".try_into().expect("a valid name"), key, FIFTY), 1);
            let decision = decide(&store, &[check]).await.decision;
            let start = value.escape_ascii().take(40).map(char::from).collect::<String>();
            assert_eq!(first_remaining(&decision), 49, "{start}... shares its key with another value");
        }
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 2 * values.len());
    for key in keys {
        assert!(key.len() <= 120 && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key}");
        assert!(key.starts_with("tollgate:{") && key[10..].contains("%7B%7D:") && key.contains("}:policy:"), "{key}");
    }
}

/// What others may have put under our key.
const FOREIGN: [&[&str]; 4] = [
    &["RPUSH", "KEY", "a", "b"],
    &["SET", "KEY", "12345"],
    // A time not long ago, and a level that no bucket reaches.
    &["SET", "KEY", "\0\x01\x7f\x7f\x7f\x7f\x7fzzzzzzzzzzzzzz"],
    // Of a bucket, and a byte more.
    &["SET", "KEY", "\0\x01\x7f\x7f\x7f\x7f\x7f\0\0\0\0\0\0\x07\0\x01\x7f\x7f\x7f\x7f\x7fx"],
];

fn put(server: &RedisServer, key: &str, foreign: &[&str]) {
    let _: i64 = server.ask(&["DEL", key]);
    let command: Vec<&str> = foreign.iter().map(|word| if *word == "KEY" { key } else { word }).collect();
    let _: Value = server.ask(&command);
}

#[tokio::test]
async fn a_foreign_value_under_our_key_counts_as_new() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    drop(take(&store, "ours", 7).await.unwrap());
    let key = server.keys().remove(0);
    for foreign in FOREIGN {
        put(&server, &key, foreign);
        let before: Vec<u8> = server.ask(&["DUMP", &key]);
        assert_eq!(remaining(&store, "ours").await, 50, "{foreign:?}");
        assert!(!take(&store, "ours", 51).await.unwrap().decision.is_allowed(), "{foreign:?}");
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", &key]), before, "{foreign:?}: nothing was taken, nothing written");
        assert_eq!(first_remaining(&take(&store, "ours", 3).await.unwrap().decision), 47, "{foreign:?}");
        server.assert_every_key_expires();
        // With others in one call.
        put(&server, &key, foreign);
        let both = [check("ours", FIFTY, 3), check("other", FIFTY, 0)];
        let decided = decide(&store, &both).await.decision;
        assert!(decided.is_allowed() && first_remaining(&decided) == 47, "{foreign:?}: {decided:?}");
        for (change, left) in [(Change::Charge(5), 45), (Change::Reset, 50)] {
            put(&server, &key, foreign);
            adjust(&store, "ours", FIFTY, change).await;
            assert_eq!(remaining(&store, "ours").await, left, "{foreign:?}: {change:?}");
        }
    }
}

#[tokio::test]
async fn a_foreign_value_is_reported_and_a_key_that_is_new_or_ours_is_not() {
    let (server, log) = (RedisServer::start(), Log::default());
    let _noting = log.note(Level::WARN);
    let store = patient_store(&server).await;
    for (before, quota) in quotas().into_iter().enumerate() {
        // No other test writes lines of this policy.
        let counter = Counter::new("reported".try_into().expect("a valid name"), Key::new("key", "ada"), quota);
        let check = [Check::new(counter, 1)];
        let decide = async || drop(decide(&store, &check).await);
        decide().await;
        decide().await;
        assert_eq!(log.count("code=\"state_foreign\""), before, "{quota}: {}", log.text());
        let [key] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
        put(&server, key, &["SET", "KEY", "12345"]);
        decide().await;
        assert_eq!(log.count("code=\"state_foreign\""), before + 1, "{quota}: {}", log.text());
        let _: i64 = server.ask(&["DEL", key]);
    }
}

#[tokio::test]
async fn counts_whose_product_with_the_window_no_number_holds_are_decided_exactly() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let decades = Quota::sliding_window(50, Duration::from_secs(60 * 365 * 86_400));
    drop(decide(&store, &[check("ours", decades, 7)]).await);
    let key = server.keys().remove(0);
    // A time in this window, and counts that another limit may have left.
    put(&server, &key, &["SET", "KEY", "\0\x01\x7f\x7f\x7f\x7f\x7fzzzzzzzzzzzz"]);
    let (count, large) = (0x7a7a_7a7a_7a7a, Quota::sliding_window((1 << 47) - 1, decades.window()));
    let left = first_remaining(&decide(&store, &[check("ours", large, 0)]).await.decision);
    assert!(left < large.limit() - count, "the window before counts, too: {left}");
    let refused = decide(&store, &[check("ours", decades, 1)]).await.decision;
    let wait = refused.retry_after().expect("a wait helps");
    assert!(!refused.is_allowed() && wait > decades.window() && wait < 2 * decades.window(), "{wait:?}");
}

/// A test's clock is read by this store alone.
#[tokio::test]
async fn state_more_than_a_window_ahead_counts_as_new_and_is_logged_for_each_algorithm() {
    let (_server, clock, store) = on_clock().await;
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    for (place, quota) in quotas().into_iter().enumerate() {
        let policy = format!("ahead-{place}");
        let counter = Counter::new(policy.as_str().try_into().expect("a valid name"), Key::new("user", "ada"), quota);
        let now = clock.now();
        let before = decide(&store, &[Check::new(counter.clone(), 3)]).await.decision;
        clock.set(now.saturating_sub(3 * quota.window()));
        let after = decide(&store, &[Check::new(counter, 3)]).await.decision;
        clock.set(now);
        assert_eq!(first_remaining(&after), first_remaining(&before), "{quota}");
        let lines = log.lines(&format!("code=\"state_ahead\" policy=\"{policy}\""));
        assert_eq!(lines.len(), 1, "{quota}: {}", log.text());
    }
}
