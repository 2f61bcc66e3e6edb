//! How the cost of a request grows with the connections to a web server, by `wrk` over loopback.

use super::report::{Table, Unit};
use crate::http::{self, Options};

const ROWS: [usize; 6] = [1, 4, 16, 64, 256, 1_024];

/// The sides of each store, each with what it is compared with. All have neither headers nor a handle.
const MEMORY: [(&str, Option<&str>); 3] =
    [("none", None), ("tower_governor", None), ("memory-bare-no-handle", Some("tower_governor"))];
const REDIS: [(&str, Option<&str>); 3] =
    [("tower-rate-limit-redis", None), ("tower-redis-cell", None), ("redis-bare-no-handle", Some("tower-redis-cell"))];

/// Measures; ends the process with 1 if a side did not do what it should.
pub(super) async fn run(quick: bool) -> Vec<Table> {
    let arguments: &[&str] = if quick { &["--quick"] } else { &["--rounds", "5"] };
    let options = Options::parse(arguments.iter().map(|&argument| argument.to_owned()));
    let options = options.unwrap_or_else(|fault| http::fail(&fault));
    let mut measured = Vec::new();
    for (sides, names) in [
        (&MEMORY, ["connections_memory", "connections_memory_rate"]),
        (&REDIS, ["connections_redis", "connections_redis_rate"]),
    ] {
        measured.extend(tables(&options, sides, names).await.unwrap_or_else(|fault| http::fail(&fault)));
    }
    measured
}

async fn tables(
    options: &Options,
    sides: &[(&'static str, Option<&'static str>)],
    [cpu, rate]: [&'static str; 2],
) -> Result<[Table; 2], String> {
    let mut runners = http::start(sides.iter().map(|(name, _)| *name), options).await?;
    let is_there = |name: &&str| runners.iter().any(|runner| runner.side.name == *name);
    let (rounds, seconds) = (options.rounds, options.seconds);
    let medians = format!("medians of {rounds} rounds of {seconds} s a side, interleaved; 100000 keys, uniform");
    let work = format!(
        "One unit of work is a request to an axum server over so many connections that are kept alive, admitted by one \
         token bucket, without headers; the processor time of the server's process, for each request ({medians})."
    );
    let rates = format!("Requests/s of the same runs ({medians}).");
    let mut tables = [
        Table::of(cpu, "connections", Unit::Microseconds, &ROWS, work),
        Table::of(rate, "connections", Unit::PerSecond, &ROWS, rates),
    ]
    .map(|table| {
        let there = sides.iter().filter(|(name, _)| is_there(name));
        there.fold(table, |table, (name, peer)| match peer {
            Some(peer) => table.side(name, Some(*peer).filter(is_there)),
            None => table.beside(name),
        })
    });
    for round in 0..rounds {
        eprintln!("round {} of {rounds}, by connections", round + 1);
        for (row, connections) in ROWS.into_iter().enumerate() {
            for (number, runner) in runners.iter_mut().enumerate() {
                let run = runner.run(options, u32::try_from(connections).expect("few connections")).await?;
                tables[0].note(number, row, run.cpu * 1e6);
                tables[1].note(number, row, run.load.per_second);
            }
        }
    }
    Ok(tables)
}
