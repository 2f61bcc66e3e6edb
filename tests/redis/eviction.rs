//! A Redis whose memory is full, by each way to make room.

use super::stores::{connect, remaining, settings, take};
use super::support::server::RedisServer;

/// What is written until the keys in question are gone: 64 KB each, for longer than a counter.
const FILLERS: usize = 5_000;
const HASH: &str = "tollgate:overrides";

/// Writes until the reply to a command is empty.
#[track_caller]
fn fill_until_gone(server: &RedisServer, command: &[&str]) {
    let (session, filler) = (server.session(), "x".repeat(64 << 10));
    let gone = (0..FILLERS).any(|number| {
        let (): () = session.ask(&["SET", &format!("filler:{number}"), &filler, "EX", "10000000"]);
        session.ask::<Vec<String>>(command).is_empty()
    });
    assert!(gone, "{FILLERS} keys were written");
}

#[tokio::test]
async fn a_full_server_that_evicts_forgets_counters_and_fails_no_decision() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-random"] {
        let server = RedisServer::start();
        let store = connect(settings(), &server).await;
        assert!(take(&store, "ada", 20).await.unwrap().decision.is_allowed());
        let _: i64 = server.ask(&["HSET", HASH, "field", "an entry"]);
        let used: String = server.ask(&["INFO", "memory"]);
        let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it has the memory");
        let most = used.parse::<usize>().expect("it is a number") + (2 << 20);
        let (): () = server.ask(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
        let (): () = server.ask(&["CONFIG", "SET", "maxmemory-policy", policy]);
        fill_until_gone(&server, &["KEYS", "tollgate:{*"]);
        assert_eq!(remaining(&store, "ada").await, 50, "{policy}");
        assert!(take(&store, "ada", 20).await.unwrap().decision.is_allowed(), "{policy}");
        if policy.starts_with("allkeys") {
            fill_until_gone(&server, &["HKEYS", HASH]);
        } else {
            assert_eq!(server.ask::<Vec<String>>(&["HKEYS", HASH]), ["field"], "{policy}");
        }
    }
}
