//! How the cost of a request grows with what it depends on: policies, keys, connections, requests in flight, processes,
//! units of a log, and the algorithm.
//!
//! Each table is of ratios to its own first row, taken round by round, and a peer that is there is measured in the same
//! rounds. The last table has by which power of its cause each cost grew. Every side asserts that each check was
//! admitted, or refused, as its name says; where a server counts calls or keys, its counts are asserted as well.

mod algorithms;
mod clocked;
mod connections;
mod in_flight;
mod keys;
mod layers;
mod logs;
mod options;
mod policies;
mod process;
mod processes;
mod report;
mod sides;

use std::time::Duration;

use tollgate::Quota;

use self::options::Options;
use self::report::Report;
use crate::record::Record;
use crate::server::Server;

const DAY: Duration = Duration::from_secs(86_400);

/// Large enough that no key runs out, over a window so long that no key expires meanwhile.
const QUOTA: Quota = Quota::token_bucket(100_000, DAY);

/// Requests in flight, where their number is not what is measured.
const IN_FLIGHT: usize = 64;

pub(crate) async fn run(flags: &[String]) {
    if let [first, arguments @ ..] = flags
        && first == process::PROCESS
    {
        return process::run(arguments).await;
    }
    let options = Options::of(flags);
    let mut report = Report::new(Record::new(options.out.as_deref()));
    let effort = options.effort;
    report.add(&layers::run(effort));
    report.add(&policies::run(effort).await);
    report.add(&keys::memory(&options));
    report.add(&keys::redis(&options).await);
    for table in connections::run(options.quick).await {
        report.add(&table);
    }
    let server = Server::start().await;
    for table in in_flight::run(effort, &server).await.into_iter().chain(processes::run(effort, &server).await) {
        report.add(&table);
    }
    report.add(&logs::memory(effort));
    report.add(&logs::redis(effort, &server).await);
    report.add(&algorithms::run(effort));
    report.end();
}
