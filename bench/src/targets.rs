//! All that has a target, in one table.

use std::time::Instant;

use crate::effort::Effort;
use crate::http::{self, Asked, Over, What};
use crate::memory::layer::sides as layers;
use crate::table::{Figure, Target, print_figures};
use crate::{memory, redis, store, usage};

/// One row: what is measured, and what it has to be.
struct Row {
    name: String,
    target: Target,
    source: Source,
}

/// Which benchmark measures a row.
#[derive(Clone, Copy)]
enum Source {
    Http(Asked),
    /// So many checks in flight.
    Store(usize),
    /// Server time in a full batch.
    Batch,
    /// A layer in process, over the one it is compared with.
    Layer(&'static str),
    /// So many threads.
    Memory(usize),
}

const REDIS: &str = "redis-bare-no-handle";
const MEMORY: &str = "memory-bare-no-handle";
const CELL: &[&str] = &["tower-redis-cell"];
/// The crates that count in Redis.
const PEERS: &[&str] = &["tower-redis-cell", "tower-rate-limit-redis"];
const CONSTANT: Over = Over::Unequal(&["headers"]);

/// The connections of all rows that name none.
const MANY: u32 = 64;

/// Measures all rows, or those with a word in their name, and prints them.
pub(crate) async fn run(flags: &[String]) {
    let (mut effort, mut is_quick, mut word) = (Effort::FULL, false, "");
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match (&**flag, flags.as_slice()) {
            ("--quick", _) => (effort, is_quick) = (Effort::QUICK, true),
            ("--only", [only, ..]) => {
                word = only;
                flags.next();
            }
            _ => usage(),
        }
    }
    let begun = Instant::now();
    let mut rows = rows();
    rows.retain(|row| row.name.contains(word));
    if rows.is_empty() {
        eprintln!("no row's name contains {word:?}");
        std::process::exit(2);
    }
    let figures = measure(&rows, effort, is_quick).await.unwrap_or_else(|fault| {
        eprintln!("{fault}");
        std::process::exit(1);
    });
    println!("Targets, measured in {} s:\n", begun.elapsed().as_secs());
    print_figures(&figures);
}

/// Measures what the rows need, and nothing else.
async fn measure(rows: &[Row], effort: Effort, is_quick: bool) -> Result<Vec<Figure>, String> {
    let (mut asked, mut in_flight, mut layers, mut threads, mut needs_batch) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), false);
    for row in rows {
        match row.source {
            Source::Http(of) => asked.push(of),
            Source::Store(of) => in_flight.push(of),
            Source::Batch => needs_batch = true,
            Source::Layer(of) => layers.push(of),
            Source::Memory(of) => threads.push(of),
        }
    }
    let mut of_layers = memory::layer_figures(&layers, is_quick)?.into_iter();
    let mut of_memory = memory::check_figures(&threads, is_quick).into_iter();
    let mut of_store = store::figures(&in_flight, effort).await.into_iter();
    let mut of_batch = if needs_batch { Some(redis::figure(effort).await) } else { None };
    let mut of_http = http::figures(&asked, is_quick).await?.into_iter();
    let figure = |row: &Row| {
        let figure = match row.source {
            Source::Http(_) => of_http.next(),
            Source::Store(_) => of_store.next(),
            Source::Batch => of_batch.take(),
            Source::Layer(_) => of_layers.next(),
            Source::Memory(_) => of_memory.next(),
        };
        Figure { name: row.name.clone(), target: Some(row.target), ..figure.expect("one for each row") }
    };
    Ok(rows.iter().map(figure).collect())
}

fn at_least(name: impl Into<String>, must: f64, stretch: f64, source: Source) -> Row {
    Row { name: name.into(), target: Target::AtLeast { must, stretch }, source }
}

fn at_most(name: impl Into<String>, must: f64, stretch: f64, source: Source) -> Row {
    Row { name: name.into(), target: Target::AtMost { must, stretch }, source }
}

const fn http(side: &'static str, connections: u32, what: What) -> Source {
    Source::Http(Asked { side, connections, what })
}

fn rows() -> Vec<Row> {
    let instructions = |name: &str, side, connections, must, stretch| {
        let name = format!("instructions added, {name}, connections: {connections}");
        at_most(name, must, stretch, http(side, connections, What::Instructions))
    };
    let requests = |name: &str, side, connections, over, must, stretch| {
        at_least(format!("requests/s, {name}"), must, stretch, http(side, connections, What::Requests(over)))
    };
    let over_best = |connections, must, stretch| {
        let name = format!("Redis over the best peer, connections: {connections}");
        requests(&name, REDIS, connections, Over::Equal(PEERS), must, stretch)
    };
    let calls = |name: &str, side, must, stretch| {
        at_most(format!("Redis calls for 100 requests, {name}"), must, stretch, http(side, MANY, What::Calls))
    };
    let checks = |in_flight, must, stretch| {
        let name = format!("checks/s, RedisStore over one multiplexed connection and Script, in flight: {in_flight}");
        at_least(name, must, stretch, Source::Store(in_flight))
    };
    let layer =
        |name: &str, side, must, stretch| at_most(format!("in process, {name}"), must, stretch, Source::Layer(side));
    let memory = |threads| {
        let name = format!("a check in memory over governor, 100,000 keys, threads: {threads}");
        at_most(name, 0.9, 0.75, Source::Memory(threads))
    };
    vec![
        instructions("Redis, no headers, no handle", REDIS, 1, 13_000.0, 11_000.0),
        instructions("Redis", "redis", 1, 20_000.0, 17_000.0),
        instructions("Redis, no headers, no handle", REDIS, MANY, 11_000.0, 9_500.0),
        instructions("Redis", "redis", MANY, 17_500.0, 15_000.0),
        instructions("memory, no headers, no handle", MEMORY, MANY, 4_000.0, 3_000.0),
        instructions("memory", "memory", MANY, 9_500.0, 8_000.0),
        over_best(1, 1.0, 1.08),
        over_best(64, 1.12, 1.25),
        over_best(256, 1.15, 1.3),
        requests("Redis, both header sets, over the best peer", "redis", MANY, Over::Unequal(PEERS), 1.0, 1.08),
        at_most(
            "processor time, Redis over tower-redis-cell",
            0.85,
            0.75,
            http(REDIS, MANY, What::Processor(Over::Equal(CELL))),
        ),
        calls("all admitted", "redis", 10.0, 8.0),
        calls("flood", "flood", 1.0, 0.2),
        calls("leases", "leases", 1.0, 0.2),
        checks(1, 1.0, 1.15),
        checks(64, 1.7, 2.2),
        checks(256, 2.0, 2.5),
        at_most("server time of a check in a batch of 64 over a plain GCRA script", 0.45, 0.35, Source::Batch),
        requests("memory over tower_governor", MEMORY, MANY, Over::Equal(&["tower_governor"]), 1.0, 1.05),
        requests(
            "memory, both header sets, over tower_governor and its two",
            "memory",
            MANY,
            Over::Unequal(&["tower_governor-headers"]),
            0.97,
            1.0,
        ),
        layer("no headers, no handle, over tower_governor", layers::BARE, 1.3, 1.0),
        layer("legacy headers, no handle, over tower_governor and its two", layers::WITH_LEGACY, 1.1, 1.0),
        layer("both header sets over tower_governor and its two", layers::ONE, 1.3, 1.1),
        layer("a refused request over an admitted one", layers::REFUSED, 1.2, 1.0),
        layer("three policies over one", layers::THREE, 1.8, 1.6),
        memory(1),
        memory(2),
        requests("flood over no limit and five constant headers", "flood", MANY, CONSTANT, 0.92, 0.97),
        requests("leases over no limit and five constant headers", "leases", MANY, CONSTANT, 0.90, 0.95),
    ]
}
