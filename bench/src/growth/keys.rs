//! How the cost of a check grows with the keys that are in use.

use super::IN_FLIGHT;
use super::options::Options;
use super::report::{Table, Unit};
use super::sides::{incr, stored};
use crate::effort::Effort;
use crate::load::Entrant;
use crate::memory::sides::{Governor, Load, Side, Tollgate};
use crate::server::Server;
use crate::stores::store;

const TOLLGATE: &str = "tollgate";
const GOVERNOR: &str = "governor";
const STORE: &str = "RedisStore";
const INCR: &str = "INCR";

pub(super) fn memory(options: &Options) -> Table {
    let Effort { rounds, calls, .. } = options.effort;
    let checks = calls * 100;
    let work = format!(
        "One unit of work is a check of one token bucket in memory, which admits, of a key made before and drawn \
         uniformly; `governor` by its keyed limiter (medians of {rounds} rounds of {checks} checks, interleaved; one \
         thread)."
    );
    let rows = &options.keys_in_memory;
    let table = Table::of("keys_memory", "keys", Unit::Nanoseconds, rows, work);
    let mut table = table.beside(GOVERNOR).side(TOLLGATE, Some(GOVERNOR));
    let sides: Vec<_> = rows.iter().map(|&keys| (Governor::new(keys), Tollgate::new(keys))).collect();
    for _ in 0..rounds {
        for (row, (theirs, ours)) in sides.iter().enumerate() {
            let load = Load { keys: rows[row], threads: 1, checks };
            table.note(0, row, theirs.nanos(load));
            table.note(1, row, ours.nanos(load));
        }
    }
    table
}

/// The keys of a row, on a server of their own.
struct Row {
    sides: [Entrant; 2],
    effort: Effort,
    _server: Server,
}

impl Row {
    async fn new(keys: usize, effort: Effort) -> Self {
        let (server, effort) = (Server::start().await, Effort { keys, ..effort });
        let sides = [
            Entrant::new(INCR, incr(server.connection().await, keys)),
            Entrant::new(STORE, stored(store(&server).await, keys)),
        ];
        for side in &sides {
            side.warm(effort).await;
        }
        assert_eq!(server.size(&mut server.connection().await).await, 2 * keys, "a key of each side for each client");
        Self { sides, effort, _server: server }
    }
}

pub(super) async fn redis(options: &Options) -> Table {
    let Effort { rounds, span, .. } = options.effort;
    let work = format!(
        "One unit of work is a check of one key on Redis, drawn uniformly: by `RedisStore` of a token bucket, which \
         admits, and by `INCR` of a counter, pipelined on one connection (time over checks, medians of {rounds} rounds \
         of {span:?} a side, interleaved; {IN_FLIGHT} in flight; a server for each row, with the keys of both sides)."
    );
    let table = Table::of("keys_redis", "keys", Unit::Microseconds, &options.keys_on_redis, work);
    let mut table = table.beside(INCR).side(STORE, Some(INCR));
    let mut rows = Vec::new();
    for &keys in &options.keys_on_redis {
        rows.push(Row::new(keys, options.effort).await);
    }
    for round in 0..rounds {
        for (place, row) in rows.iter().enumerate() {
            for (number, side) in row.sides.iter().enumerate() {
                let sample = side.measure(row.effort, IN_FLIGHT, round).await;
                table.note(number, place, 1e6 / sample.per_second);
            }
        }
    }
    table
}
