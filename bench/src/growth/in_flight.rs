//! How checks/s and latency grow with the requests in flight of one process.

use super::report::{Table, Unit};
use super::sides::{incr, stored};
use crate::effort::Effort;
use crate::load::Entrant;
use crate::server::{SCRIPTS, Server};
use crate::stores::store;

const ROWS: [usize; 6] = [1, 4, 16, 64, 256, 1_024];

const STORE: &str = "RedisStore";
const INCR: &str = "INCR";

pub(super) async fn run(effort: Effort, server: &Server) -> [Table; 2] {
    let mut tables = tables(effort);
    let mut connection = server.connection().await;
    let sides = [
        (Entrant::new(INCR, incr(server.connection().await, effort.keys)), &["incr"][..]),
        (Entrant::new(STORE, stored(store(server).await, effort.keys)), &SCRIPTS[..]),
    ];
    for (side, _) in &sides {
        side.warm(effort).await;
    }
    for round in 0..effort.rounds {
        for (row, in_flight) in ROWS.into_iter().enumerate() {
            for (number, (side, commands)) in sides.iter().enumerate() {
                server.reset_stats(&mut connection).await;
                let sample = side.measure(effort, in_flight, round).await;
                let (calls, _) = server.command_stats(&mut connection, commands).await;
                let count = sample.count as f64;
                assert!(calls > 0.0 && calls <= count, "{count} checks and {calls} calls");
                // Only checks that wait together share a call.
                let is_alone = number == 0 || in_flight == 1;
                assert!(!is_alone || calls.total_cmp(&count).is_eq(), "{count} checks and {calls} calls, one for each");
                tables[0].note(number, row, sample.per_second);
                tables[1].note(number, row, sample.p50_us);
            }
        }
    }
    server.flush(&mut connection).await;
    tables
}

fn tables(Effort { rounds, span, keys, .. }: Effort) -> [Table; 2] {
    let medians = format!("medians of {rounds} rounds of {span:?} a side, interleaved; {keys} keys, uniform");
    let work = format!(
        "One unit of work is a check of one key, begun when the same task's last one ended: through one `RedisStore` of \
         a token bucket, which admits, or by an `INCR` of a counter, pipelined on one connection. Either side reads and \
         writes one key for each, of equal length; only `RedisStore` sets an expiry ({medians})."
    );
    let p50 = format!("The median latency of the same checks, in the same rounds ({medians}).");
    let cause = "in flight";
    [
        Table::of("in_flight_rate", cause, Unit::PerSecond, &ROWS, work),
        Table::of("in_flight_latency", cause, Unit::Microseconds, &ROWS, p50),
    ]
    .map(|table| table.beside(INCR).side(STORE, Some(INCR)))
}
