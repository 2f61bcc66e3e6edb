//! The network between a process and the tally.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};
use tollgate::Error;
use tollgate_ratio::{MemoryTally, Report, Tally, Totals};

/// What the network loses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The share of reports that are lost.
    pub(crate) reports: f64,
    /// The share of replies that are lost.
    pub(crate) replies: f64,
    /// The seconds during which nothing arrives.
    pub(crate) unavailable: Range<u32>,
}

/// The calls of all processes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// How many calls there were.
    pub(crate) calls: AtomicU64,
    /// The bytes of reports and replies, as they are sent to Redis, without their frames.
    pub(crate) bytes: AtomicU64,
}

/// A tally at the end of a network that delays each way by up to 10 ms.
#[derive(Debug)]
pub(crate) struct Faulty {
    tally: MemoryTally,
    faults: Faults,
    calls: Arc<Calls>,
    start: Instant,
    random: Mutex<Rng>,
}

impl Faulty {
    /// The network of one process, which counts its calls; faults are timed from `start` on.
    pub(crate) fn new(tally: MemoryTally, faults: Faults, calls: Arc<Calls>, start: Instant, random: Rng) -> Self {
        Self { tally, faults, calls, start, random: Mutex::new(random) }
    }

    /// Draws the delays of both ways, and whether the report and the reply are lost.
    fn draw(&self) -> ([Duration; 2], [bool; 2]) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let delays = [0, 1].map(|_| Duration::from_millis(random.u64(0..=10)));
        let seconds = self.start.elapsed().as_secs();
        let unavailable = self.faults.unavailable.contains(&u32::try_from(seconds).unwrap_or(u32::MAX));
        let lost = [self.faults.reports, self.faults.replies].map(|share| random.f64() < share);
        (delays, [unavailable || lost[0], lost[1]])
    }

    async fn call(&self, report: Report) -> Result<Totals, Error> {
        let ([there, back], [report_is_lost, reply_is_lost]) = self.draw();
        let lost = || Err(Error::connection("the connection was lost", io::Error::from(io::ErrorKind::BrokenPipe)));
        let counters = report.counters.len() as u64;
        self.calls.calls.fetch_add(1, Ordering::Relaxed);
        sleep(there).await;
        if report_is_lost {
            return lost();
        }
        let totals = self.tally.report(report).await?;
        let bytes = 15 + 34 * counters + 11 + 14 * counters + 30 * totals.hot.len() as u64;
        self.calls.bytes.fetch_add(bytes, Ordering::Relaxed);
        sleep(back).await;
        if reply_is_lost { lost() } else { Ok(totals) }
    }
}

impl Tally for Faulty {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(self.call(report))
    }
}
