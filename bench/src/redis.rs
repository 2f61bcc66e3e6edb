//! What a decision costs the server: microseconds from `INFO commandstats`, bytes from
//! `used_memory`, as ratios to a plain `INCR`.

use std::time::Duration;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::{Cmd, cmd};
use tollgate::store::{Check, Counter};
use tollgate::{Key, Quota, RedisStore, Store};

use crate::server::Server;
use crate::table::{median, print};

const ROUNDS: usize = 9;
const CALLS: u64 = 2_000;
const KEYS: u64 = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn run() {
    let server = Server::start().await;
    let mut connection = server.connection().await;
    let store = RedisStore::builder()
        .without_deny_cache()
        .budget(Duration::from_secs(5))
        .connect(server.url())
        .await
        .expect("connected");
    println!(
        "Server time of one decision over one key, over that of `INCR` (median of {ROUNDS} rounds of {CALLS} calls, interleaved):\n"
    );
    time(&server, &mut connection, &store).await;
    println!(
        "Bytes of `used_memory` a key, over a counter of `INCR` with an expiry and a key of the same text ({KEYS} keys):\n"
    );
    memory(&server, &mut connection, &store).await;
    println!("Bytes of one key by `MEMORY USAGE`, the sliding log against a plain sorted set of the same units:\n");
    logs(&server, &mut connection, &store).await;
}

fn quotas(limit: u64) -> Vec<(&'static str, Quota)> {
    vec![
        ("fixed window", Quota::fixed_window(limit, MINUTE)),
        ("sliding log", Quota::sliding_log(limit, MINUTE)),
        ("sliding window", Quota::sliding_window(limit, MINUTE)),
        ("token bucket (GCRA)", Quota::token_bucket(limit, MINUTE)),
        ("leaky bucket, queue", Quota::leaky_bucket(limit, MINUTE).queue(99)),
    ]
}

async fn time(server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    // The allowed side takes one of 100 units from keys in turn, so that logs stay as long; the
    // denied side asks for more than is left of 100.
    let mut sides: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..ROUNDS {
        let incr = incr_micros(server, connection).await;
        for (index, (name, quota)) in quotas(100).into_iter().enumerate() {
            for (place, denied) in [false, true].into_iter().enumerate() {
                let micros = decision_micros(server, connection, store, quota, round, denied).await;
                let side = 2 * index + place;
                if sides.len() == side {
                    sides.push((format!("{name}, {}", if denied { "denied" } else { "allowed" }), Vec::new()));
                }
                sides[side].1.push(micros / incr);
            }
        }
    }
    let rows: Vec<_> = sides.into_iter().map(|(name, ratios)| vec![name, format!("{:.1}", median(ratios))]).collect();
    print(&["decision", "over `INCR`"], &rows);
}

async fn incr_micros(server: &Server, connection: &mut MultiplexedConnection) -> f64 {
    server.reset_stats(connection).await;
    for call in 0..CALLS {
        let () = cmd("INCR").arg(text("incr", call % 100)).query_async(connection).await.expect("counted");
    }
    let (calls, micros) = server.command_stats(connection, "incr").await;
    micros / calls
}

async fn decision_micros(
    server: &Server,
    connection: &mut MultiplexedConnection,
    store: &RedisStore,
    quota: Quota,
    round: usize,
    denied: bool,
) -> f64 {
    let check = |call: u64, cost: u64| {
        let key = Key::new("ip", format!("{round}-{denied}-{}", call % 100));
        Check::new(Counter { policy: "bench".into(), key, quota }, cost)
    };
    if denied {
        for call in 0..100 {
            decide(store, check(call, 100), true).await;
        }
    }
    server.reset_stats(connection).await;
    for call in 0..CALLS {
        decide(store, check(call, 1), !denied).await;
    }
    let (calls, micros) = server.command_stats(connection, "evalsha").await;
    server.flush(connection).await;
    micros / calls
}

async fn decide(store: &RedisStore, check: Check, allowed: bool) {
    let decided = store.decide(&[check]).wait().await.expect("decided");
    assert_eq!(decided.decision.is_allowed(), allowed, "{:?}", decided.decision);
}

async fn memory(server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    let mut rows = Vec::new();
    let text_of = |number: u64| text("tollgate:{ip:198.51.100", number) + "}:bench:1t60000000u";
    let incr = fill(server, connection, |number| {
        let mut call = cmd("INCR");
        call.arg(text_of(number));
        let mut expire = cmd("PEXPIRE");
        expire.arg(text_of(number)).arg(60_000);
        vec![call, expire]
    })
    .await;
    let hash = fill(server, connection, |number| {
        let mut call = cmd("HSET");
        call.arg(text_of(number)).arg("tokens").arg("99.123456789").arg("time").arg("1700000000.123456");
        let mut expire = cmd("EXPIRE");
        expire.arg(text_of(number)).arg(60);
        vec![call, expire]
    })
    .await;
    rows.push(vec!["`INCR` with an expiry".to_owned(), format!("{incr:.0}"), "1.00".to_owned()]);
    rows.push(vec!["classic hash of tokens and time".to_owned(), format!("{hash:.0}"), format!("{:.2}", hash / incr)]);
    // With a limit of 1 the state of every algorithm is needed for a whole window: none expires here.
    for (name, quota) in quotas(1) {
        server.flush(connection).await;
        let before = server.used_memory(connection).await;
        for number in 0..KEYS {
            let key = Key::new("ip", text("198.51.100", number));
            decide(store, Check::new(Counter { policy: "bench".into(), key, quota }, 1), true).await;
        }
        let bytes = (server.used_memory(connection).await - before) / KEYS as f64;
        rows.push(vec![name.to_owned(), format!("{bytes:.0}"), format!("{:.2}", bytes / incr)]);
    }
    server.flush(connection).await;
    print(&["state", "bytes", "over `INCR`"], &rows);
}

async fn fill(server: &Server, connection: &mut MultiplexedConnection, calls: impl Fn(u64) -> Vec<Cmd>) -> f64 {
    server.flush(connection).await;
    let before = server.used_memory(connection).await;
    for number in 0..KEYS {
        for call in calls(number) {
            let () = call.query_async(connection).await.expect("written");
        }
    }
    (server.used_memory(connection).await - before) / KEYS as f64
}

fn text(prefix: &str, number: u64) -> String {
    format!("{prefix}.{number:05}")
}

async fn logs(server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    let mut rows = Vec::new();
    for units in [10_u64, 100, 200, 1_000] {
        server.flush(connection).await;
        let counter =
            Counter { policy: "bench".into(), key: Key::new("ip", "log"), quota: Quota::sliding_log(1_000, MINUTE) };
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
