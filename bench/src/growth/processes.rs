//! How checks/s, and the processor time of a check, grow with the processes on one Redis.

use std::num::NonZero;
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
use crate::table::median_of;

const ROWS: [usize; 4] = [1, 2, 4, 8];

/// The peer, then ours, with the commands that their checks are.
const SIDES: [(&str, &[&str]); 2] = [(process::INCR, &["incr"]), (process::STORE, &SCRIPTS)];

/// Between the order to start and the start.
const LEAD: Duration = Duration::from_millis(50);

/// The part of what there is from which on it is used up, as the rest goes to the kernel and to waking up.
const FULL: f64 = 0.85;

/// What one side did in one round.
struct Trial {
    per_second: f64,
    /// Processor time of the server, for each check.
    cpu_us: f64,
    /// Cores that the server and the processes kept busy.
    server_cores: f64,
    process_cores: f64,
}

pub(super) async fn run(effort: Effort, server: &Server) -> [Table; 2] {
    let (mut tables, mut last) = (tables(effort), SIDES.map(|_| Vec::new()));
    let mut connection = server.connection().await;
    Entrant::new("warm", incr(connection.clone(), effort.keys)).warm(effort).await;
    Entrant::new("warm", stored(store(server).await, effort.keys)).warm(effort).await;
    for round in 0..effort.rounds {
        for (row, processes) in ROWS.into_iter().enumerate() {
            for (number, side) in SIDES.into_iter().enumerate() {
                let trial = trial(effort, server, &mut connection, side, processes, round).await;
                tables[0].note(number, row, trial.per_second);
                tables[1].note(number, row, trial.cpu_us);
                if row == ROWS.len() - 1 {
                    last[number].push(trial);
                }
            }
        }
    }
    let [incr, store] = last.map(|trials| bound(&trials));
    let most = ROWS[ROWS.len() - 1];
    tables[0].conclude(format!("What bounds {most} processes: of `INCR`, {incr}; of `RedisStore`, {store}."));
    server.flush(&mut connection).await;
    tables
}

/// Says what more processes would need to do more.
fn bound(trials: &[Trial]) -> String {
    let [server, processes] = [|trial: &Trial| trial.server_cores, |trial: &Trial| trial.process_cores]
        .map(|cores| median_of(trials.iter().map(cores)));
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    let by = if server >= FULL {
        "so the one thread of Redis is the bound"
    } else if server + processes >= FULL * all as f64 {
        "so all cores are busy, and processes on other machines would go on to grow"
    } else {
        "so neither Redis nor the cores are: they wait for round trips, or for other programs"
    };
    format!("the server keeps {server:.2} cores busy and the processes {processes:.2}, of {all}, {by}")
}

async fn trial(
    Effort { keys, span, .. }: Effort,
    server: &Server,
    connection: &mut MultiplexedConnection,
    (side, commands): (&str, &[&str]),
    processes: usize,
    round: usize,
) -> Trial {
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
    let count: f64 = samples.iter().map(|checks| checks.count).sum();
    let of_processes: f64 = samples.iter().map(|checks| checks.cpu_us * checks.count).sum();
    let (calls, _) = server.command_stats(connection, commands).await;
    assert!(calls > 0.0 && calls <= count, "{count} checks and {calls} calls");
    assert!(side == process::STORE || calls.total_cmp(&count).is_eq(), "an `INCR` for each check");
    Trial {
        per_second: samples.iter().map(|checks| checks.per_second).sum(),
        cpu_us: cpu * 1e6 / count,
        server_cores: cpu / span.as_secs_f64(),
        process_cores: of_processes / 1e6 / span.as_secs_f64(),
    }
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
    .map(|table| table.beside("INCR").side("RedisStore", Some("INCR")))
}
