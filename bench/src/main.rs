//! Benchmarks, as ratios of sides that are interleaved in one run.
//!
//! `cargo run --release -p tollgate-bench -- WHAT [--quick]`, WHAT being one of
//!
//! - `targets`: all that has a target, in one table; with `--only WORD` the rows whose name contains it; all of them need
//!   `--features peers`, wrk and valgrind, and build redis-cell;
//! - `instructions`: what a request executes in a web server, by callgrind, which other work on the machine does not
//!   change; with `--save FILE` the counts as a file, with `--against FILE` beside those of before, and status 1 if one
//!   is above 1.02 of it; with `--sides a,b` some sides by name;
//! - `walk`: the files and functions of the crate that a request crosses; without `--release`;
//! - `redis`: what a decision costs the server, in time and memory;
//! - `store`: what `RedisStore` does beside other ways to ask Redis;
//! - `memory`: how the memory store compares with `governor`, and what a layer adds to a request, with `--features
//!   peers` beside `tower_governor`, with `--tower-rate-limiter` beside that crate; with `--layers` only the latter;
//!   with `profile NAME N` N requests through one layer;
//! - `growth`: how the cost of a request grows with policies, keys, connections, requests in flight, processes, units of
//!   a log and by algorithm, with `--features peers` beside other crates; needs wrk, and 12 GB of memory without `--quick`;
//! - `quotas`: what each kind of quota costs a request, in memory and on Redis;
//! - `http`: what a limit costs a web server; with `--features peers` beside other crates;
//! - `latency`: what a limit adds to the latency of a request at three loads; with `--features peers` beside other crates;
//! - `flows`: what a chunk costs that is taken from a leased portion, and the calls of a body;
//! - `neighbours`: what requests wait when another stalls, in memory and on Redis; with `--redis` on
//!   Redis only, with `--paced` on a server that is mostly idle;
//! - `regions`: what a limit of several regions costs and keeps, in several ways, and a counter that is split; with
//!   `--rounds N`, `--seconds N` and `--only SIDE`;
//! - `soak --minutes N`: whether a server under a mixed load keeps to its memory, files and tasks; with
//!   `--leaky` after it, what it says of one that does not.
//!
//! `--quick` is for trying it out: fewer and shorter rounds. `--out FILE` writes the figures of `growth`, `latency`, `http`
//! and `instructions`, of which `examples/charts/benchmarks` draws pictures.

mod cluster;
mod effort;
mod flows;
mod growth;
mod http;
mod latency;
mod load;
mod memory;
mod neighbours;
mod plain;
mod quotas;
mod record;
mod redis;
mod regions;
mod server;
mod soak;
mod store;
mod stores;
mod table;
mod targets;
mod versions;
mod work;

use effort::Effort;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (what, flags) = arguments.split_first().map_or(("", &[][..]), |(what, flags)| (what, flags));
    match what {
        "targets" => targets::run(flags).await,
        "redis" => redis::run(effort(flags)).await,
        "store" => store::run(effort(flags)).await,
        "memory" => memory::run(flags),
        "growth" => growth::run(flags).await,
        "quotas" => quotas::run(flags).await,
        "http" => http::run().await,
        "instructions" => http::count().await,
        "walk" => http::walk().await,
        "latency" => latency::run(flags).await,
        "flows" => flows::run(effort(flags)).await,
        http::SERVE => http::serve().await,
        "neighbours" => neighbours::run(flags).await,
        "regions" => regions::run(flags).await,
        "soak" => soak::run(flags).await,
        _ => usage(),
    }
}

fn effort(flags: &[String]) -> Effort {
    match flags {
        [] => Effort::FULL,
        [flag] if flag == "--quick" => Effort::QUICK,
        _ => usage(),
    }
}

/// Says how the program is called, and ends it.
fn usage() -> ! {
    eprintln!(
        "give one of: targets redis store memory growth quotas http flows neighbours latency regions, and --quick for a short run, of targets --only WORD; \
         or instructions, walk, or soak --minutes N, perhaps --leaky"
    );
    std::process::exit(2);
}
