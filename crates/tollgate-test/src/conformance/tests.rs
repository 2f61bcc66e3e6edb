//! The suite finds what is wrong with a store, and nothing wrong with ours.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate::policy::{Algorithm, PolicyName};
use tollgate::store::Requirement;
use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Clock, Counter, MaybeFuture, Mode, Receipt, Settlement, Settling,
    StoreDecision,
};
use tollgate::{Decision, Error, MemoryStore, Outcome};

use super::*;

/// Lists what may be wrong with a store.
macro_rules! faults {
    ($($fault:ident),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Fault {
            $($fault),+
        }

        const FAULTS: &[Fault] = &[$($fault),+];
    };
}

use Fault::*;

faults![
    TakesWhatFitsOfRefusedRequests,
    IgnoresFloors,
    RefusesInShadowMode,
    LimitsByOneMore,
    CountsPoliciesTogether,
    CountsRepeatsOnce,
    RefundsTwice,
    RefundsNothing,
    ChargesNothing,
    ResetsNothing,
    FindsNone,
    FindsSomeAlways,
    AdjustsNothing,
    SettlesTheFirstCheckOnly,
    ChargesLooks,
    ForgetsOne,
    ReturnsNoReceipt,
    Fails,
    WaitsATickLess,
    ResetsATickLate,
    LeavesOneMore,
    RenewsNothing,
    ForgetsUnitsWhenALimitChanges,
    NeverStepsBack,
];

const TICK: Duration = Duration::from_micros(1);

/// A clock that does not follow one that is set back.
struct Monotonic {
    clock: ManualClock,
    latest: AtomicU64,
}

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        let now = u64::try_from(self.clock.now().as_micros()).expect("a time of a test");
        Duration::from_micros(self.latest.fetch_max(now, Ordering::SeqCst).max(now))
    }
}

/// A store in memory with a fault.
struct Wrong {
    inner: MemoryStore,
    fault: Fault,
    is_first: AtomicBool,
}

impl Wrong {
    fn new(clock: ManualClock, fault: Fault) -> Self {
        let inner = MemoryStore::builder();
        let inner = match fault {
            NeverStepsBack => inner.clock(Monotonic { clock, latest: AtomicU64::new(0) }),
            _ => inner.clock(clock),
        };
        Self { inner: inner.build(), fault, is_first: AtomicBool::new(true) }
    }

    fn check(&self, mut check: Check) -> Check {
        match self.fault {
            IgnoresFloors => check.floor = 0,
            RefusesInShadowMode => check.mode = Mode::Enforce,
            CountsPoliciesTogether => {
                let (name, counter) = ("one".try_into().expect("a valid name"), &check.counter);
                check.counter = Counter::new(name, counter.key().clone(), *counter.quota());
            }
            ForgetsUnitsWhenALimitChanges => {
                let (name, counter) = (format!("of-{}", check.counter.quota().limit()), &check.counter);
                let name = PolicyName::try_from(name.as_str()).expect("a valid name");
                check.counter = Counter::new(name, counter.key().clone(), *counter.quota());
            }
            LimitsByOneMore => check.cost = check.cost.saturating_sub(1),
            ChargesLooks => check.cost = check.cost.max(1),
            _ => {}
        }
        check
    }

    /// The outcome of a token bucket, of which one number is wrong.
    fn outcome(&self, outcome: &Outcome, check: &Check) -> Outcome {
        if outcome.quota().algorithm() != Algorithm::TokenBucket || outcome.is_banned() || check.cost == 0 {
            return outcome.clone();
        }
        let remaining = outcome.remaining() + u64::from(self.fault == LeavesOneMore);
        let less = if self.fault == WaitsATickLess { TICK } else { Duration::ZERO };
        let more = if self.fault == ResetsATickLate { TICK } else { Duration::ZERO };
        let wait = outcome.retry_after().map(|wait| wait.saturating_sub(less));
        let wrong = if outcome.is_allowed() {
            Outcome::allowed(check, remaining)
        } else {
            Outcome::denied(check, remaining, wait)
        };
        wrong.with_reset_after(outcome.reset_after() + more)
    }

    fn all_at_once(&self, checks: &[Check]) -> Result<StoreDecision, Error> {
        let MaybeFuture::Ready(decided) = self.inner.decide(checks, Ask::default()) else {
            panic!("memory does not wait")
        };
        decided
    }

    fn change(&self, change: Change) -> Change {
        match change {
            Change::Refund(units) if self.fault == RefundsTwice => Change::Refund(units.saturating_mul(2)),
            Change::Refund(_) if self.fault == RefundsNothing => Change::Refund(0),
            Change::Renew(_) if self.fault == RenewsNothing => Change::Renew(0),
            Change::Charge(_) if self.fault == ChargesNothing => Change::Charge(0),
            other => other,
        }
    }
}

impl Store for Wrong {
    fn decide(&self, checks: &[Check], _: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        if self.fault == Fails && !self.is_first.swap(false, Ordering::SeqCst) {
            return MaybeFuture::Ready(Err(Error::timeout("it is slow")));
        }
        let mut checks: Vec<Check> = checks.iter().cloned().map(|check| self.check(check)).collect();
        if self.fault == CountsRepeatsOnce && checks.len() > 1 {
            let mut seen = BTreeSet::new();
            for check in &mut checks {
                if !seen.insert(format!("{:?}", check.counter)) {
                    check.cost = 0;
                }
            }
        }
        let decided = self.all_at_once(&checks);
        MaybeFuture::Ready(decided.map(|decided| match self.fault {
            TakesWhatFitsOfRefusedRequests if !decided.decision.is_allowed() => {
                for check in &checks {
                    let _ = self.all_at_once(std::slice::from_ref(check));
                }
                decided
            }
            ForgetsOne => {
                let outcomes = decided.decision.outcomes();
                let kept = outcomes.iter().take(outcomes.len().saturating_sub(1)).cloned();
                StoreDecision::new(Decision::new(kept, decided.decision.source()), decided.receipt)
            }
            WaitsATickLess | ResetsATickLate | LeavesOneMore => {
                let outcomes =
                    decided.decision.outcomes().iter().zip(&checks).map(|(one, check)| self.outcome(one, check));
                StoreDecision::new(Decision::new(outcomes, decided.decision.source()), decided.receipt)
            }
            ReturnsNoReceipt => StoreDecision::new(decided.decision, Receipt::new(decided.receipt.store(), [])),
            _ => decided,
        }))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let changes: Vec<_> = match self.fault {
            SettlesTheFirstCheckOnly => changes.iter().map(|one| Settlement::new(0, one.change)).collect(),
            _ => changes.iter().map(|one| Settlement::new(one.check, self.change(one.change))).collect(),
        };
        self.inner.settle(receipt, &changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let applied = |units| MaybeFuture::Ready(Ok(ChangeResult::new(units, 0)));
        match (self.fault, change) {
            (ResetsNothing, Change::Reset) => applied(1),
            (FindsNone | FindsSomeAlways, Change::Reset) => {
                drop(self.inner.adjust(counter, change));
                applied(u64::from(self.fault == FindsSomeAlways))
            }
            (AdjustsNothing, Change::Refund(_) | Change::Charge(_) | Change::Renew(_)) => applied(0),
            _ => self.inner.adjust(counter, self.change(change)),
        }
    }
}

/// A store that looks, waits, and then takes: two requests at once may take the same unit.
struct Racy(Arc<MemoryStore>);

impl Store for Racy {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let (store, checks) = (Arc::clone(&self.0), checks.to_vec());
        MaybeFuture::pending(async move {
            let looks: Vec<Check> = checks.iter().map(|check| check.clone().cost(0)).collect();
            let looked = store.decide(&looks, ask).wait().await?;
            let left = looked.decision.outcomes().iter().map(Outcome::remaining);
            if left.zip(&checks).any(|(left, check)| left < check.cost && check.mode == Mode::Enforce) {
                return store.decide(&checks, ask).wait().await;
            }
            // Long enough for another to look, also on a machine whose cores are taken.
            tokio::time::sleep(Duration::from_millis(1)).await;
            for check in &checks {
                drop(store.adjust(&check.counter, Change::Charge(check.cost)).wait().await?);
            }
            store.decide(&looks, ask).wait().await
        })
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.0.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.0.adjust(counter, change)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_looks_before_it_takes_admits_too_many_at_once() {
    let make = async |clock| Racy(Arc::new(MemoryStore::builder().clock(clock).build()));
    let report = conformance(make).await;
    let at_once = ["crowd::as_many_as_fit_are_admitted_of_many_at_once", "crowd::requests_in_tasks_of_their_own"];
    for name in at_once {
        assert!(report.differences().any(|(case, _)| case.starts_with(name)), "{name}: {report}");
    }
}

#[tokio::test]
async fn each_fault_of_a_store_is_found() {
    for &fault in FAULTS {
        let report = conformance(async |clock| Wrong::new(clock, fault)).await;
        assert!(report.differences().next().is_some(), "{fault:?}: {report}");
        let text = report.to_string();
        assert!(text.contains("differs: ") && text.len() < 250_000, "{fault:?}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn a_report_of_differences_panics_with_each_of_them() {
    let report = conformance(async |clock| Wrong::new(clock, LimitsByOneMore)).await;
    let panicked = std::panic::catch_unwind(|| report.assert_passed()).expect_err("something differs");
    let text = panicked.downcast_ref::<String>().expect("a panic with a text");
    assert!(text.contains("tables.rs:") && text.contains("expected"), "{text}");
}

/// A store that supports nothing.
struct Picky(MemoryStore);

impl Store for Picky {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.0.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.0.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.0.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        if requirements.is_empty() { self.0.capabilities(&[]) } else { Err(Error::invalid("it supports nothing")) }
    }
}

#[tokio::test]
async fn what_a_store_does_not_support_is_left_out_and_said() {
    let report = conformance(async |_| Picky(MemoryStore::new())).await;
    assert_eq!(report.passed(), 1, "a request without checks: {report}");
    assert!(report.left_out().all(|(_, reason)| reason.contains("it supports nothing")), "{report}");
    assert!(report.left_out().count() > 40, "{report}");
}

#[tokio::test]
async fn a_history_repeats_with_its_seed_and_another_seed_is_another_history() {
    let run = async |seed| {
        let suite = Conformance::new(async |clock| Wrong::new(clock, IgnoresFloors)).seed(seed);
        suite.run().await.differences().map(|(case, text)| format!("{case}: {text}")).collect::<Vec<_>>()
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await, run(2).await);
}

#[test]
fn without_a_runtime_a_store_that_does_not_wait_is_compared_as_well() {
    let suite = Conformance::new(async |clock| MemoryStore::builder().clock(clock).build()).expires_by_clock();
    let mut run = std::pin::pin!(suite.run());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(report) = run.as_mut().poll(&mut cx) else { panic!("it does not wait") };
    report.assert_passed();
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

#[tokio::test]
async fn a_store_on_the_clock_of_the_system_is_compared_where_that_is_possible() {
    let suite = Conformance::new(async |_| MemoryStore::new()).own_clock(Duration::from_secs(1));
    let report = suite.run().await;
    report.assert_passed();
    assert!(report.passed() > 10 && report.compared() > 500, "{report}");
    let wrong = Conformance::new(async |_| Wrong::new(ManualClock::new(), LimitsByOneMore));
    let report = wrong.own_clock(Duration::from_secs(1)).run().await;
    assert!(report.differences().next().is_some(), "{report}");
}
