//! The conformance suite: what every store must decide, for those who write one.

#[macro_use]
mod case;

mod bans;
#[cfg(feature = "calendar")]
mod calendar;
mod crowd;
mod histories;
mod report;
mod rows;
mod subject;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use report::Report;

use self::case::{Case, Group};
use self::subject::{Stop, Subject, Time};
use super::ManualClock;
use crate::store::Store;

/// The groups of cases, in the order in which they run.
const GROUPS: &[Group] = &[
    Group { name: "tables", cases: tables::CASES, has_start: false },
    #[cfg(feature = "calendar")]
    Group { name: "calendar", cases: calendar::CASES, has_start: true },
    Group { name: "bans", cases: bans::CASES, has_start: true },
    Group { name: "histories", cases: histories::CASES, has_start: false },
    Group { name: "crowd", cases: crowd::CASES, has_start: false },
];

/// The time within which a case must end.
const LONGEST: Duration = Duration::from_secs(120);

/// Runs the conformance suite on the stores that a closure makes, and returns what differs.
///
/// It is [`Conformance`] with its default settings, whose documentation says what is compared. The page
/// `docs/writing-a-store.md` in the repository shows a store and its test.
///
/// # Examples
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate::test_util::conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance(async |clock| MemoryStore::builder().with_clock(clock).build()).await.assert_passed();
/// # }
/// ```
pub async fn conformance<S, F>(make_store: F) -> Report
where
    S: Store,
    F: AsyncFn(ManualClock) -> S,
{
    Conformance::new(make_store).run().await
}

/// The conformance suite, with settings: what every store must decide, compared with what a store decides.
///
/// - **Tables**: for each algorithm, requests and changes at given times with the exact outcome of each (whether it is
///   allowed, what remains, when to retry, when all is free, how long it waits in line), by the definitions that
///   [`Quota`](crate::Quota) documents. Requests with several checks are admitted as a whole or not at all, checks in
///   shadow mode refuse nothing, and refunds, charges and resets change what they should and nothing else. Keys are
///   banned after the given number of refusals, for as long as they should be.
/// - **Histories**: some thousand random requests at the edges of quotas and windows, with one check or several, repeated
///   counters, floors, changed limits, bans, refunds, charges, renewals and resets, each compared field by field with a
///   [`MemoryStore`](crate::MemoryStore) on the same clock. Requests that are told to wait are refused until a tick
///   before, and admitted then.
/// - **A crowd**: of requests that are in flight together as many are admitted as fit, and what is refunded, charged and
///   left adds up.
///
/// # Stores
///
/// The closure is called once for each case and returns an empty store that shares nothing with those before: for a
/// server, give each a prefix or a database of its own. Its time is that of the clock, which stands still but where a
/// case sets it; see [`own_clock`](Self::own_clock) for a store that cannot read another clock.
///
/// What a store does not [support](Store::capabilities) is not compared: the report lists these cases. A store may forget
/// states that have expired by real time, as Redis does; see [`expires_by_clock`](Self::expires_by_clock).
///
/// Run it in a tokio runtime with several threads (`#[tokio::test(flavor = "multi_thread")]`) to compare requests on
/// several threads too. In a tokio runtime with timers, a case that takes longer than two minutes is reported as a
/// difference. Tokio's time must not be paused.
#[derive(Clone)]
#[must_use]
pub struct Conformance<F> {
    make_store: F,
    seed: u64,
    expires_by_clock: bool,
    own_clock: Option<Duration>,
}

impl<S, F> Conformance<F>
where
    S: Store,
    F: AsyncFn(ManualClock) -> S,
{
    /// A suite for the stores that a closure makes.
    pub fn new(make_store: F) -> Self {
        Self { make_store, seed: 1, expires_by_clock: false, own_clock: None }
    }

    /// Sets the seed of the random histories, by default 1. A history repeats with its seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Declares that states expire by the clock that the store was made with, and never by real time.
    ///
    /// Then windows of a few microseconds are tested as well: while the clock stands still, a state of theirs must not
    /// be forgotten.
    pub fn expires_by_clock(self) -> Self {
        Self { expires_by_clock: true, ..self }
    }

    /// Declares that the store has a clock of its own, and that the times which it returns may differ by `tolerance`
    /// from the exact ones.
    ///
    /// Only what needs no other time is compared then: cases stop where they would set the clock, and those are left out
    /// in which it matters when a window starts. Histories are compared with a
    /// [`MemoryStore`](crate::MemoryStore) on the system's clock.
    pub fn own_clock(self, tolerance: Duration) -> Self {
        Self { own_clock: Some(tolerance), ..self }
    }

    /// Runs all cases, one after the other, and returns what differs.
    pub async fn run(&self) -> Report {
        let mut report = Report::default();
        for group in GROUPS {
            for case in group.cases {
                let name = format!("{}::{}", group.name, case.name);
                if group.has_start && self.own_clock.is_some() {
                    report.leave_out(name, "it matters when its windows start");
                    continue;
                }
                self.run_case(case, name, &mut report).await;
            }
        }
        report
    }

    async fn run_case(&self, case: &Case, name: String, report: &mut Report) {
        let clock = ManualClock::new();
        let store: Arc<dyn Store> = Arc::new((self.make_store)(clock.clone()).await);
        let time = match self.own_clock {
            Some(tolerance) => Time::own(tolerance),
            None => Time::Manual { clock, expires: self.expires_by_clock },
        };
        let subject = Subject::new(store, time, self.seed);
        let stopped = within(LONGEST, (case.run)(&subject)).await;
        let (compared, mut differences) = subject.into_found();
        let reason = match stopped {
            Ok(()) | Err(Stop::Forgets) => None,
            Err(Stop::Unsupported(reason)) => Some(reason),
            Err(Stop::OwnClock) => Some("what follows needs a clock that is set".to_owned()),
            Err(Stop::Failed(reason) | Stop::Differs(reason)) => {
                differences.push(reason);
                None
            }
        };
        report.add(name, compared, differences, reason);
    }
}

/// Awaits a case for a time, where there are timers.
async fn within(time: Duration, case: impl Future<Output = Result<(), Stop>>) -> Result<(), Stop> {
    if tokio::runtime::Handle::try_current().is_err() {
        return case.await;
    }
    let late = || Stop::Failed(format!("it did not end within {} s", time.as_secs()));
    tokio::time::timeout(time, case).await.unwrap_or_else(|_| Err(late()))
}

impl<F> fmt::Debug for Conformance<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, expires_by_clock, own_clock, .. } = self;
        f.debug_struct("Conformance")
            .field("seed", seed)
            .field("expires_by_clock", expires_by_clock)
            .field("own_clock", own_clock)
            .finish_non_exhaustive()
    }
}
