//! What a limit of several regions costs and keeps: one far Redis in several ways, a Redis a region, and one
//! counter on a Cluster beside the same counter split over its slots.
//!
//! Three regions have two processes each, which are processes of this program. What is sent to the far Redis passes a
//! proxy that delays each byte by 80 ms, each way. Three loads run at the same time, each with processes and servers of
//! its own; the sides take turns. A round of a side is a start of 5 s, the seconds that are measured, and, if there is a
//! far link, 3 s in which it is cut and 3 s after that.
//!
//! A last table is of one key that one process has decided as fast as it can; `regions flood` prints that only.
//!
//! `--rounds N` and `--seconds N` set how often, and how long is measured; `--only NAME` measures one side.

mod crdt;
mod figures;
mod flood;
mod load;
mod plan;
mod process;
mod proxy;
mod report;
mod sides;
mod sites;
mod split;
mod trial;

use figures::Figures;
use load::LOADS;
use sides::{SIDES, Side};
use sites::Site;

/// What every process limits all requests to, in units a second.
const LIMIT: u64 = 1_000;
const REGIONS: u32 = 3;
/// Processes of a region.
const INSTANCES: u32 = 2;

/// The first argument of a process, after `regions`.
const PROCESS: &str = "process";

/// The first argument for the last table only.
const FLOOD: &str = "flood";

pub(crate) async fn run(flags: &[String]) {
    if let [first, arguments @ ..] = flags
        && first == PROCESS
    {
        return process::run(arguments).await;
    }
    let only_flood = flags.first().is_some_and(|first| first == FLOOD);
    let (plan, only) = plan::of(&flags[usize::from(only_flood)..]);
    let sides: Vec<Side> =
        SIDES.into_iter().filter(|side| only.as_ref().is_none_or(|only| only == side.name)).collect();
    if sides.is_empty() {
        crate::usage();
    }
    let mut servers = Vec::new();
    for _ in LOADS {
        servers.push(Site::start(&sides).await);
    }
    if only_flood {
        return flood::run(&sides, &servers[0], plan).await;
    }
    let mut measured: Vec<_> = sides.iter().map(|_| Vec::<[Figures; LOADS.len()]>::new()).collect();
    for round in 0..plan.rounds {
        for (side, measured) in sides.iter().zip(&mut measured) {
            measured.push(trial::run(*side, &servers, plan, round).await);
            eprintln!("round {}: {}", round + 1, side.name);
        }
    }
    report::print(plan, &sides, &measured);
    flood::run(&sides, &servers[0], plan).await;
}
