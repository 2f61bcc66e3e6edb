//! Processes that limit by ratios over one Redis: together they admit what the limit is, and make a call a tick.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::store::{Ask, Store};
use tollgate::{Quota, RedisStore};
use tollgate_ratio::RatioStore;

use crate::support::checks::check;
use crate::support::server::RedisServer;

const TICK: Duration = Duration::from_millis(500);
const LIMIT: u64 = 1_000;
const QUOTA: Quota = Quota::fixed_window(LIMIT, Duration::from_secs(1));

/// Three ticks until the ratios are those of the load, and one more.
const BEFORE: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// A thread that waits so long for its turn may be late for a report, which has a quarter of a tick.
const BUSY: Duration = Duration::from_millis(60);
/// A fleet on a machine that stalled is measured again.
const ATTEMPTS: usize = 8;

/// Offers so many requests a second from `start` on, and returns how many are admitted in the time that is measured, and
/// the longest wait for a turn.
async fn process(url: String, a_second: u64, start: Instant) -> (u64, Duration) {
    // Its budget is more than a report may take.
    let redis = RedisStore::builder().timeout(TICK).lazy().connect(&url).await.expect("the URL is one");
    let store = RatioStore::builder(redis).tick(TICK).build();
    let (mut offered, mut admitted, mut stall, mut last) = (0, 0, Duration::ZERO, start);
    while start.elapsed() < BEFORE + MEASURED {
        stall = stall.max(last.elapsed());
        last = Instant::now();
        let due = u64::try_from(start.elapsed().as_micros()).expect("it is some seconds") * a_second / 1_000_000;
        for _ in offered..due {
            let decided = store.decide(&[check("all", QUOTA, 1)], Ask::default()).wait().await;
            let is_allowed = decided.expect("it always decides").decision.is_allowed();
            admitted += u64::from(is_allowed && start.elapsed() >= BEFORE);
        }
        offered = due;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (admitted, stall)
}

/// Has a process in a runtime of its own for each load; returns what all admit in a second, in parts of the limit, and
/// the longest wait for a turn.
fn admitted_by(url: &str, loads: &[u64]) -> (f64, Duration) {
    let barrier = &Barrier::new(loads.len());
    let (admitted, stall) = thread::scope(|scope| {
        let processes = loads.iter().map(|a_second| {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                barrier.wait();
                runtime.block_on(process(url.to_owned(), *a_second, Instant::now()))
            })
        });
        let processes: Vec<_> = processes.collect();
        let all = processes.into_iter().map(|process| process.join().expect("it ended"));
        all.fold((0, Duration::ZERO), |all, one| (all.0 + one.0, all.1.max(one.1)))
    });
    #[allow(clippy::cast_precision_loss, reason = "it is a small number")]
    let of_limit = admitted as f64 / (MEASURED.as_secs() * LIMIT) as f64;
    (of_limit, stall)
}

#[test]
fn eight_processes_admit_the_limit_whichever_of_them_has_the_load() {
    for loads in [[625; 8], [4_300, 100, 100, 100, 100, 100, 100, 100]] {
        for left in (0..ATTEMPTS).rev() {
            let server = RedisServer::start();
            let (of_limit, stall) = admitted_by(&server.url(), &loads);
            // One a tick, one to begin with, and that which checks the server: of each process.
            let (reports, least, most) = (server.scripts(), 8 * 6, 8 * (12 + 1 + 4));
            let is_well = (0.85..=1.15).contains(&of_limit) && (least..=most).contains(&reports);
            if is_well {
                break;
            }
            println!("{of_limit} of the limit, {reports} calls, with {loads:?}; the machine stalled {stall:?}");
            assert!(left > 0 && stall > BUSY, "{of_limit} of the limit, {reports} calls, with {loads:?}");
        }
    }
}
