//! Whether a server keeps to its memory, files, tasks and connections under a mixed load, for as long as
//! one has patience.
//!
//! The server is a process of its own, this program called with [`SERVE`], so that what is read of it is
//! not the load's. With every reading all connections to Redis are closed, as a leak of those would not
//! show in quiet.

mod app;
mod client;
mod load;
mod process;
mod reading;
mod verdict;

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::server::Server;
use crate::table::print;
use load::Load;
use process::Process;
use reading::Reading;

/// What comes before the URL of its Redis in the arguments of the process that serves.
const SERVE: &str = "serve";
const PACE: Duration = Duration::from_secs(10);
/// With fewer there are no quarters to compare.
const MIN_READINGS: u64 = 8;

/// Makes the server leak on purpose: memory and tasks, so that one sees the verdict.
const LEAKY: &str = "--leaky";

/// Runs for the time asked for; ends the process with 1 if something grew or failed.
pub(crate) async fn run(flags: &[String]) {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (minutes, leaky): (&str, _) = match flags[..] {
        [SERVE, redis] => return app::serve(redis, false).await,
        [SERVE, redis, LEAKY] => return app::serve(redis, true).await,
        ["--minutes", minutes] => (minutes, false),
        ["--minutes", minutes, LEAKY] => (minutes, true),
        _ => crate::usage(),
    };
    let minutes: u64 = minutes.parse().unwrap_or_else(|_| crate::usage());
    if !soak((minutes * 60 / PACE.as_secs()).max(MIN_READINGS), leaky).await {
        std::process::exit(1);
    }
}

async fn soak(count: u64, leaky: bool) -> bool {
    let redis = Server::start().await;
    let mut connection = redis.connection().await;
    let (process, address) = Process::start(redis.url(), leaky);
    let load = Load::start(address);
    println!("{}", Reading::HEADER);
    let (mut readings, mut ticks) = (Vec::new(), interval_at(Instant::now() + PACE, PACE));
    for _ in 0..count {
        ticks.tick().await;
        let reading = Reading::take(&redis, &mut connection, &process, address, &load).await;
        println!("{reading}");
        readings.push(reading);
    }
    let grown = verdict::rows(&readings);
    println!();
    print(&verdict::COLUMNS, &grown.iter().map(verdict::Row::cells).collect::<Vec<_>>());
    let (flat, failed) = (grown.iter().all(verdict::Row::is_flat), load.failed());
    println!("{}, {failed} requests failed", if flat { "flat" } else { "not flat" });
    flat && failed == 0
}
