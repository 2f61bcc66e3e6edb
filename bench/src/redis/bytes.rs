//! Memory of one key.

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::{Cmd, cmd};
use tollgate::policy::Algorithm;
use tollgate::store::{Check, Counter};
use tollgate::{Key, Quota, RedisStore};

use super::{MINUTE, decide, quotas, text};
use crate::effort::Effort;
use crate::server::Server;
use crate::table::{Figure, print, print_figures};

pub(super) async fn run(effort: Effort, server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    let keys = effort.keys / 10;
    println!(
        "Bytes of `used_memory` a key, over a counter of `INCR` with an expiry and a key of the same text ({keys} \
         keys):\n"
    );
    let incr = fill(server, connection, keys, counter).await;
    let hash = fill(server, connection, keys, classic_hash).await;
    let row = |name: &str, bytes: f64| vec![name.to_owned(), format!("{bytes:.0}"), format!("{:.2}", bytes / incr)];
    let mut rows = vec![row("`INCR` with an expiry", incr), row("classic hash of tokens and time", hash)];
    let mut bucket = Vec::new();
    // With a limit of 1 the state of every algorithm is needed for a whole window: none expires here.
    for (name, quota) in quotas(1, MINUTE) {
        let bytes = decided(server, connection, keys, store, quota).await;
        rows.push(row(name, bytes));
        if quota.algorithm() == Algorithm::TokenBucket {
            bucket.push(bytes / hash);
        }
    }
    print(&["state", "bytes", "over `INCR`"], &rows);
    print_figures(&[Figure::new("bytes in Redis per token bucket key, over the classic hash", bucket, None)]);
}

fn counter(text: &str) -> [Cmd; 2] {
    let [mut call, mut expire] = [cmd("INCR"), cmd("PEXPIRE")];
    call.arg(text);
    expire.arg(text).arg(60_000);
    [call, expire]
}

fn classic_hash(text: &str) -> [Cmd; 2] {
    let [mut call, mut expire] = [cmd("HSET"), cmd("EXPIRE")];
    call.arg(text).arg("tokens").arg("99.123456789").arg("time").arg("1700000000.123456");
    expire.arg(text).arg(60);
    [call, expire]
}

/// Bytes of a key that these calls write.
async fn fill(
    server: &Server,
    connection: &mut MultiplexedConnection,
    keys: usize,
    calls: impl Fn(&str) -> [Cmd; 2],
) -> f64 {
    server.flush(connection).await;
    let before = server.used_memory(connection).await;
    for number in 0..keys {
        for call in calls(&(text("tollgate:{ip:198.51.100", number) + "}:bench:1t60000000u")) {
            let () = call.query_async(connection).await.expect("written");
        }
    }
    (server.used_memory(connection).await - before) / keys as f64
}

/// Bytes of a key that a decision writes.
async fn decided(
    server: &Server,
    connection: &mut MultiplexedConnection,
    keys: usize,
    store: &RedisStore,
    quota: Quota,
) -> f64 {
    server.flush(connection).await;
    let before = server.used_memory(connection).await;
    for number in 0..keys {
        let key = Key::new("ip", text("198.51.100", number));
        decide(store, Check::new(Counter::new("bench".try_into().expect("a valid name"), key, quota), 1), true).await;
    }
    (server.used_memory(connection).await - before) / keys as f64
}

pub(super) async fn logs(server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    println!("Bytes of one key by `MEMORY USAGE`, the sliding log against a plain sorted set of the same units:\n");
    let mut rows = Vec::new();
    for units in [10_u64, 100, 200, 1_000] {
        server.flush(connection).await;
        let counter = Counter::new(
            "bench".try_into().expect("a valid name"),
            Key::new("ip", "log"),
            Quota::sliding_log(1_000, MINUTE),
        );
        for unit in 0..units {
            decide(store, Check::new(counter.clone(), 1), true).await;
            let (time, member) = (1_700_000_000_000_000 + unit, format!("1700000000{unit:06}-{unit}"));
            let () = cmd("ZADD").arg("set").arg(time).arg(member).query_async(connection).await.expect("added");
        }

        let ours = log_key(connection).await;
        let (log, set) = (usage(connection, &ours).await, usage(connection, "set").await);
        rows.push(vec![units.to_string(), format!("{log:.0}"), format!("{set:.0}"), format!("{:.2}", log / set)]);
    }
    print(&["units", "sliding log", "sorted set", "ratio"], &rows);
}

async fn log_key(connection: &mut MultiplexedConnection) -> String {
    let keys: Vec<String> = cmd("KEYS").arg("tollgate:*").query_async(connection).await.expect("our own server");
    keys.into_iter().next().expect("the log is there")
}

async fn usage(connection: &mut MultiplexedConnection, key: &str) -> f64 {
    cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(connection).await.expect("the key is there")
}
