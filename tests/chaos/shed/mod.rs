//! Shedders and back-pressure: what clients see of them, and what becomes of slots and jobs.

mod app;
mod cases;
mod jobs;
mod report;

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tollgate::{Key, Limiter, RedisStore, Rule};

use self::app::Server;
use self::report::Outcome;
use crate::case::Case;
use crate::rig::{self, Rig};
use crate::table::Report;

/// More time than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn no_critical_request_is_refused_and_no_slot_is_lost_whatever_happens_to_redis() {
    rig::run(&cases::all(), attempt);
}

fn attempt(case: &Case) -> Report {
    let (mut rig, server) = Rig::start(case, async |store| Server::start(store).await);
    let (times, samples) = rig.measure(case);
    let jobs = rig.runtime.block_on(async { timeout(PATIENCE, server.jobs.stop()).await.expect("no worker hangs") });
    let back = rig.runtime.block_on(until_back(&rig.redis.url()));
    let outcome = Outcome { peaks: server.peaks.most(), jobs, back };
    rig.stop();
    report::report(case, times, &samples, &outcome)
}

/// Waits until no slot is taken any more, and returns how long that took; `None` if some stay for a life and longer.
async fn until_back(url: &str) -> Option<Duration> {
    let store = RedisStore::builder().timeout(PATIENCE).connect(url).await.expect("Redis is back");
    let rules = [
        (Rule::new("fleet", app::SLOTS), Key::new("global", "")),
        (Rule::new("fleet.others", app::SLOTS), Key::new("global", "")),
        (Rule::new("jobs", jobs::SLOTS), jobs::key()),
    ];
    let limiters = rules.map(|(rule, key)| (Limiter::new(store.clone(), [rule]).timeout(PATIENCE), key));
    let start = Instant::now();
    while start.elapsed() < app::LIFE + PATIENCE {
        let mut taken = 0;
        for (limiter, key) in &limiters {
            let seen = limiter.peek(key).await.expect("Redis is back");
            taken += seen.outcomes().iter().map(|of| of.quota().limit() - of.remaining()).sum::<u64>();
        }
        if taken == 0 {
            return Some(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    None
}
