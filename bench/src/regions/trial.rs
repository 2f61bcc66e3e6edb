//! One round of a side: its processes under all loads at the same time.

use std::array;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::figures::{Figures, Second, merged};
use super::load::LOADS;
use super::plan::Plan;
use super::process::Process;
use super::sides::Side;
use super::sites::{Site, Work};
use super::{INSTANCES, REGIONS};

/// Between the order to start and the start.
const LEAD: Duration = Duration::from_millis(300);

/// The figures of each load.
pub(super) async fn run(side: Side, sites: &[Site], plan: Plan, round: usize) -> [Figures; LOADS.len()] {
    for site in sites {
        site.flush(side.place).await;
    }
    let mut processes = JoinSet::new();
    for (load, site) in sites.iter().enumerate() {
        for region in (0..REGIONS).flat_map(|region| [region; INSTANCES as usize]) {
            let urls = site.urls(side.place, region);
            processes.spawn(async move { (load, Process::start(side.name, load, region, &urls).await) });
        }
    }
    let processes = processes.join_all().await;
    let (start, clock) = (Instant::now() + LEAD, SystemTime::now() + LEAD);
    let mut running = JoinSet::new();
    for (number, (load, process)) in processes.into_iter().enumerate() {
        let (seconds, seed) = (plan.length(side.has_link()), (round << 16 | number) as u64);
        running.spawn(async move { (load, process.load(clock, seconds, seed).await) });
    }
    let work = watch(side, sites, plan, start).await;
    let mut loads: [Vec<Vec<Second>>; LOADS.len()] = array::from_fn(|_| Vec::new());
    for (load, seconds) in running.join_all().await {
        loads[load].push(seconds);
    }
    let mut work = work.into_iter();
    loads.map(|processes| Figures::new(plan, &merged(processes), work.next().unwrap_or_default()))
}

/// Reads what the servers did in the seconds that are measured, and cuts the links after them.
async fn watch(side: Side, sites: &[Site], plan: Plan, start: Instant) -> Vec<Work> {
    let at = |second: usize| start + Duration::from_secs(second as u64);
    sleep_until(at(plan.steady().start)).await;
    take_work(side, sites).await;
    sleep_until(at(plan.steady().end)).await;
    let work = take_work(side, sites).await;
    if side.has_link() {
        sleep_until(at(plan.cut().start)).await;
        for site in sites {
            site.cut(Duration::from_secs(plan.cut().len() as u64));
        }
    }
    work
}

async fn take_work(side: Side, sites: &[Site]) -> Vec<Work> {
    let mut work = Vec::new();
    for site in sites {
        work.push(site.take_work(side.place).await);
    }
    work
}
