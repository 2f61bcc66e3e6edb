//! Processes that limit by ratios over one Redis: together they admit what the limit is, and make a call a tick.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::store::{Deadline, RatioStore, Store};
use tollgate::{Quota, RedisStore};

use crate::support::checks::check;
use crate::support::server::RedisServer;

const TICK: Duration = Duration::from_millis(500);
const LIMIT: u64 = 1_000;
const QUOTA: Quota = Quota::fixed_window(LIMIT, Duration::from_secs(1));

/// Three ticks until the ratios are those of the load, and one more.
const BEFORE: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// Offers so many requests a second from `start` on, and returns how many are admitted in the time that is measured.
async fn process(url: String, a_second: u64, start: Instant) -> u64 {
    // Its budget is more than a report may take.
    let redis = RedisStore::builder().budget(TICK).connect_lazy(&url).expect("the URL is one");
    let store = RatioStore::builder(redis).tick(TICK).build().expect("the settings are valid");
    let (mut offered, mut admitted) = (0, 0);
    while start.elapsed() < BEFORE + MEASURED {
        let due = u64::try_from(start.elapsed().as_micros()).expect("it is some seconds") * a_second / 1_000_000;
        for _ in offered..due {
            let decided = store.decide(&[check("all", QUOTA, 1)], Deadline::none()).wait().await;
            let is_allowed = decided.expect("it always decides").decision.is_allowed();
            admitted += u64::from(is_allowed && start.elapsed() >= BEFORE);
        }
        offered = due;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admitted
}

/// Has a process in a runtime of its own for each load; returns what all admit in a second, in parts of the limit.
fn admitted_by(url: &str, loads: &[u64]) -> f64 {
    let barrier = &Barrier::new(loads.len());
    let admitted: u64 = thread::scope(|scope| {
        let processes = loads.iter().map(|a_second| {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                barrier.wait();
                runtime.block_on(process(url.to_owned(), *a_second, Instant::now()))
            })
        });
        let processes: Vec<_> = processes.collect();
        processes.into_iter().map(|process| process.join().expect("it ended")).sum()
    });
    #[allow(clippy::cast_precision_loss, reason = "it is a small number")]
    let of_limit = admitted as f64 / (MEASURED.as_secs() * LIMIT) as f64;
    of_limit
}

/// How many reports there were.
fn reports(server: &RedisServer) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number"))
}

#[test]
fn eight_processes_admit_the_limit_whichever_of_them_has_the_load() {
    for loads in [[625; 8], [4_300, 100, 100, 100, 100, 100, 100, 100]] {
        let server = RedisServer::start();
        let of_limit = admitted_by(&server.url(), &loads);
        assert!((0.85..=1.15).contains(&of_limit), "{of_limit} of the limit, with {loads:?}");
        // One a tick, one to begin with, and that which checks the server: of each process.
        let (reports, most) = (reports(&server), 8 * (12 + 1 + 4));
        assert!((8 * 6..=most).contains(&reports), "{reports} calls");
    }
}
