//! How checks/s, and the processor time of a check, grow with the processes on one Redis.

use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;

use super::IN_FLIGHT;
use super::process::{self, Process};
use super::report::{Table, Unit};
use super::sides::{incr, stored};
use crate::effort::Effort;
use crate::load::Entrant;
use crate::server::{SCRIPTS, Server};
use crate::stores::store;

const ROWS: [usize; 4] = [1, 2, 4, 8];

/// The peer, then ours, with the commands that their checks are.
const SIDES: [(&str, &[&str]); 2] = [(process::INCR, &["incr"]), (process::STORE, &SCRIPTS)];

/// Between the order to start and the start.
const LEAD: Duration = Duration::from_millis(50);

pub(super) async fn run(effort: Effort, server: &Server) -> [Table; 2] {
    let mut tables = tables(effort);
    let mut connection = server.connection().await;
    Entrant::new("warm", incr(connection.clone(), effort.keys)).warm(effort).await;
    Entrant::new("warm", stored(store(server).await, effort.keys)).warm(effort).await;
    for round in 0..effort.rounds {
        for (row, processes) in ROWS.into_iter().enumerate() {
            for (number, side) in SIDES.into_iter().enumerate() {
                let (rate, cpu_us) = trial(effort, server, &mut connection, side, processes, round).await;
                tables[0].note(number, row, rate);
                tables[1].note(number, row, cpu_us);
            }
        }
    }
    server.flush(&mut connection).await;
    tables
}

/// Checks of all processes a second, and microseconds of the server's processor time for each.
async fn trial(
    Effort { keys, span, .. }: Effort,
    server: &Server,
    connection: &mut MultiplexedConnection,
    (side, commands): (&str, &[&str]),
    processes: usize,
    round: usize,
) -> (f64, f64) {
    let mut started = Vec::new();
    for _ in 0..processes {
        started.push(Process::start(side, server.url(), IN_FLIGHT / processes, keys).await);
    }
    server.reset_stats(connection).await;
    let (before, start) = (server.used_cpu(connection).await, SystemTime::now() + LEAD);
    let mut running = JoinSet::new();
    for (number, process) in started.into_iter().enumerate() {
        running.spawn(process.load(start, span, round << 8 | number));
    }
    let samples = running.join_all().await;
    let cpu = server.used_cpu(connection).await - before;
    let count = samples.iter().map(|(count, _)| count).sum::<usize>() as f64;
    let (calls, _) = server.command_stats(connection, commands).await;
    assert!(calls > 0.0 && calls <= count, "{count} checks and {calls} calls");
    assert!(side == process::STORE || calls.total_cmp(&count).is_eq(), "an `INCR` for each check");
    (samples.iter().map(|(_, rate)| rate).sum(), cpu * 1e6 / count)
}

fn tables(Effort { rounds, span, keys, .. }: Effort) -> [Table; 2] {
    let medians = format!("medians of {rounds} rounds of {span:?} a side, interleaved; {keys} keys, uniform");
    let work = format!(
        "One unit of work is a check of one key, as in the tables before, by one of so many processes on one Redis, each \
         of one thread and with its part of {IN_FLIGHT} in flight; checks/s are those of all together ({medians})."
    );
    let cpu = format!("Processor time of the server, for each check, in the same rounds ({medians}).");
    [
        Table::of("processes_rate", "processes", Unit::PerSecond, &ROWS, work),
        Table::of("processes_cpu", "processes", Unit::Microseconds, &ROWS, cpu),
    ]
    .map(|table| table.side("INCR", None).side("RedisStore", Some("INCR")))
}
