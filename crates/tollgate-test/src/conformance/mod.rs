//! The conformance suite, which compares the decisions of a store with the required ones.

mod bans;
#[cfg(feature = "calendar")]
mod calendar;
mod crowd;
mod histories;
mod rows;
mod subject;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tollgate::store::Store;
use tollgate::test_util::ManualClock;

use self::rows::Table;
use self::subject::{Checked, Found, Stop, Subject};

const MAX_TIME: Duration = Duration::from_secs(120);

/// Runs the conformance suite on the stores that a closure makes, and returns a report of the differences.
///
/// It uses the default settings of [`Conformance`], which documents the comparison.
///
/// # Examples
///
/// ```
/// use tollgate_test::conformance;
/// use tollgate::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance(async |clock| MemoryStore::builder().clock(clock).build()).await.assert_passed();
/// # }
/// ```
pub async fn conformance<S, F>(make_store: F) -> Report
where
    S: Store,
    F: AsyncFn(ManualClock) -> S,
{
    Conformance::new(make_store).run().await
}

/// The conformance suite with its settings: compares the decisions of a store with the required ones.
///
/// - **Tables**: for each algorithm, requests and changes at given times with the exact outcome of each (whether it is
///   allowed, the remaining units, the times to retry and to reset, the wait in a queue), by the definitions that
///   [`Quota`](tollgate::Quota) documents. Requests with several checks are allowed as a whole or not at all, checks in
///   shadow mode deny nothing, and refunds, charges and resets change exactly the right units. Keys are banned after
///   the given number of denials, for the right time.
/// - **Histories**: some thousand random requests at the edges of quotas and windows, with one check or several,
///   repeated counters, floors, changed limits, bans, refunds, charges, renewals and resets, each compared field by
///   field with a [`MemoryStore`](tollgate::MemoryStore) on the same clock. Requests with a time to retry are denied
///   until a tick before that time, and allowed then.
/// - **A crowd**: as many concurrent requests are allowed as fit, and refunded, charged and remaining units add up.
///
/// # Stores
///
/// The closure is called once for each case and returns an empty store that shares nothing with earlier stores: on a
/// server, use a separate prefix or database for each. The store must use the given clock, which stands still unless a
/// case sets it; see [`own_clock`](Self::own_clock) for a store that cannot read another clock.
///
/// Cases that a store does not [support](Store::capabilities) are left out: the report lists them. A store may drop
/// states that have expired by real time, like Redis; see [`expires_by_clock`](Self::expires_by_clock).
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
    /// Then windows of a few microseconds are tested as well: while the clock stands still, their states must not be
    /// dropped.
    pub fn expires_by_clock(self) -> Self {
        Self { expires_by_clock: true, ..self }
    }

    /// Declares that the store has its own clock, and that its times may differ by `tolerance` from the exact ones.
    ///
    /// Then cases stop where they would set the clock, and cases that depend on the start of a window are left out.
    /// Histories are compared with a [`MemoryStore`](tollgate::MemoryStore) on the system's clock.
    pub fn own_clock(self, tolerance: Duration) -> Self {
        Self { own_clock: Some(tolerance), ..self }
    }

    /// Runs all cases, one after the other, and returns a report of the differences.
    pub async fn run(&self) -> Report {
        let mut report = Report::default();
        for table in tables::all(!self.expires_by_clock) {
            self.case(format!("tables::{}", table.name), &mut report, async |on| on.table(&table).await).await;
        }
        #[cfg(feature = "calendar")]
        match calendar::all() {
            Ok(tables) => self.at_times("calendar", tables, &mut report).await,
            Err(error) => report.add("calendar".to_owned(), Found::default(), Some(error.to_string())),
        }
        self.at_times("bans", bans::all(), &mut report).await;
        for (name, most_checks, with) in histories::CASES {
            let run = async |on: &Subject| histories::run(on, self.seed, *most_checks, with).await;
            self.case(format!("histories::{name}"), &mut report, run).await;
        }
        self.case("crowd::as_many_as_fit_are_admitted_of_many_at_once".to_owned(), &mut report, crowd::fits).await;
        let adds_up = async |on: &Subject| crowd::adds_up(on, self.seed).await;
        self.case("crowd::what_is_charged_and_refunded_at_once_adds_up".to_owned(), &mut report, adds_up).await;
        let tasks = "crowd::requests_in_tasks_of_their_own_take_as_much_as_there_is";
        self.case(tasks.to_owned(), &mut report, crowd::tasks).await;
        let foreign = "crowd::a_receipt_of_another_store_changes_nothing";
        self.case(foreign.to_owned(), &mut report, crowd::foreign).await;
        report
    }

    /// Runs tables that depend on the start of windows, so they need a clock that can be set.
    async fn at_times(&self, group: &str, tables: Vec<Table>, report: &mut Report) {
        for table in tables {
            let run = async |on: &Subject| match on.clock {
                Some(_) => on.table(&table).await,
                None => Err(Stop::LeftOut("it matters when its windows start".to_owned())),
            };
            self.case(format!("{group}::{}", table.name), report, run).await;
        }
    }

    async fn case(&self, name: String, report: &mut Report, run: impl AsyncFnOnce(&Subject) -> Checked) {
        let clock = ManualClock::new();
        let store: Arc<dyn Store> = Arc::new((self.make_store)(clock.clone()).await);
        let (clock, tolerance) = (self.own_clock.is_none().then_some(clock), self.own_clock.unwrap_or_default());
        let (forgets, found) = (clock.is_some() && !self.expires_by_clock, Found::default().into());
        let on = Subject { store, clock, forgets, tolerance, since: Instant::now(), found };
        let stopped = if tokio::runtime::Handle::try_current().is_err() {
            run(&on).await
        } else {
            let late = |_| Err(Stop::Failed(format!("it did not end within {} s", MAX_TIME.as_secs())));
            tokio::time::timeout(MAX_TIME, run(&on)).await.unwrap_or_else(late)
        };
        let mut found = on.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let reason = match stopped {
            Ok(()) | Err(Stop::Forgets) => None,
            Err(Stop::LeftOut(reason)) => Some(reason),
            Err(Stop::Failed(reason) | Stop::Differs(reason)) => {
                found.differences.push(reason);
                None
            }
        };
        report.add(name, found, reason);
    }
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

const SHOWN: usize = 10;

/// The result of a run of the [conformance suite](Conformance), which prints each row that differs.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Report {
    cases: Vec<Case>,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    compared: usize,
    differences: Vec<String>,
    stopped: Option<String>,
}

impl Report {
    fn add(&mut self, name: String, found: Found, stopped: Option<String>) {
        let Found { compared, differences, .. } = found;
        self.cases.push(Case { name, compared, differences, stopped });
    }

    /// Returns the number of cases that passed, including cases that ran [in part](Self::in_part).
    #[must_use]
    pub fn passed(&self) -> usize {
        let passed = |case: &&Case| case.differences.is_empty() && (case.compared > 0 || case.stopped.is_none());
        self.cases.iter().filter(passed).count()
    }

    /// Returns the number of results that were compared in all cases.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.cases.iter().map(|case| case.compared).sum()
    }

    /// Returns the names of the cases that were left out, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stopped(|compared| compared == 0)
    }

    /// Returns the names of the cases that ended early, because the rest cannot be compared, each with the reason.
    pub fn in_part(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stopped(|compared| compared > 0)
    }

    fn stopped(&self, which: impl Fn(usize) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let cases = self.cases.iter().filter(move |case| which(case.compared));
        cases.filter_map(|case| Some((case.name.as_str(), case.stopped.as_deref()?)))
    }

    /// Returns the differences: the name of the case, and the expected and found results.
    pub fn differences(&self) -> impl Iterator<Item = (&str, &str)> {
        let cases = self.cases.iter();
        cases.flat_map(|case| case.differences.iter().map(move |one| (case.name.as_str(), one.as_str())))
    }

    /// Asserts that nothing differs, and that some case could run.
    ///
    /// # Panics
    ///
    /// If a result differs, or no case could run, with this report as the message.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.differences().next().is_none() && self.passed() > 0, "the store does not conform\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differing = || self.cases.iter().filter(|case| !case.differences.is_empty());
        let (passed, differ, left_out) = (self.passed(), differing().count(), self.left_out().count());
        writeln!(f, "{passed} cases passed, {differ} differ, {left_out} left out")?;
        writeln!(f, "{} results compared", self.compared())?;
        for Case { name, differences, .. } in differing() {
            writeln!(f, "differs: {name}")?;
            for difference in differences.iter().take(SHOWN) {
                writeln!(f, "    {difference}")?;
            }
            if let Some(more @ 1..) = differences.len().checked_sub(SHOWN) {
                writeln!(f, "    and {more} more")?;
            }
        }
        let in_part = self.in_part().map(|case| ("in part", case));
        let mut early = in_part.chain(self.left_out().map(|case| ("left out", case)));
        early.try_for_each(|(how, (case, reason))| writeln!(f, "{how}: {case}: {reason}"))
    }
}
