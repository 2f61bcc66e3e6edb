//! Server time of one decision in a call of its own.

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::cmd;
use tollgate::store::{Check, Counter};
use tollgate::{Key, Quota, RedisStore};

use super::{DAY, decide, quotas, text};
use crate::effort::Effort;
use crate::server::{SCRIPTS, Server};
use crate::table::{median, print};

/// Decisions of one kind: allowed ones take one of 100 units from 100 keys in turn, so that logs
/// stay as long; denied ones find 100 units taken.
struct Kind {
    name: String,
    quota: Quota,
    denied: bool,
    /// Server time over that of `INCR`, by round.
    ratios: Vec<f64>,
}

pub(super) async fn run(effort: Effort, server: &Server, connection: &mut MultiplexedConnection, store: &RedisStore) {
    let Effort { rounds, calls, .. } = effort;
    println!(
        "Server time of one decision over one key, over that of `INCR` (median of {rounds} rounds of {calls} calls, \
         interleaved):\n"
    );
    let mut kinds: Vec<Kind> = quotas(100, DAY).into_iter().flat_map(kinds_of).collect();
    for _ in 0..rounds {
        let incr = incr_micros(server, connection, calls).await;
        for kind in &mut kinds {
            let micros = decision_micros(server, connection, store, kind, calls).await;
            kind.ratios.push(micros / incr);
        }
    }
    let rows: Vec<_> = kinds.into_iter().map(|kind| vec![kind.name, format!("{:.1}", median(kind.ratios))]).collect();
    print(&["decision", "over `INCR`"], &rows);
}

fn kinds_of((name, quota): (&str, Quota)) -> [Kind; 2] {
    [(false, "allowed"), (true, "denied")].map(|(denied, verdict)| Kind {
        name: format!("{name}, {verdict}"),
        quota,
        denied,
        ratios: Vec::new(),
    })
}

async fn incr_micros(server: &Server, connection: &mut MultiplexedConnection, calls: usize) -> f64 {
    server.reset_stats(connection).await;
    for call in 0..calls {
        let () = cmd("INCR").arg(text("incr", call % 100)).query_async(connection).await.expect("counted");
    }
    let (calls, micros) = server.command_stats(connection, &["incr"]).await;
    micros / calls
}

async fn decision_micros(
    server: &Server,
    connection: &mut MultiplexedConnection,
    store: &RedisStore,
    kind: &Kind,
    calls: usize,
) -> f64 {
    let check = |call: usize, cost: u64| {
        let key = Key::new("ip", text("198.51.100", call % 100));
        Check::new(Counter::new("bench".try_into().expect("a valid name"), key, kind.quota), cost)
    };
    if kind.denied {
        for call in 0..100 {
            decide(store, check(call, 100), true).await;
        }
    }
    server.reset_stats(connection).await;
    for call in 0..calls {
        decide(store, check(call, 1), !kind.denied).await;
    }
    let (calls, micros) = server.command_stats(connection, &SCRIPTS).await;
    server.flush(connection).await;
    micros / calls
}
