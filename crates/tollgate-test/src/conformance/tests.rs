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

/// What may be wrong with a store.
const FAULTS: [&str; 24] = [
    "takes what fits of refused requests",
    "ignores floors",
    "refuses in shadow mode",
    "limits by one more",
    "counts policies together",
    "counts repeats once",
    "refunds twice",
    "refunds nothing",
    "charges nothing",
    "resets nothing",
    "finds none",
    "finds some always",
    "adjusts nothing",
    "settles the first check only",
    "charges looks",
    "forgets one",
    "returns no receipt",
    "fails",
    "waits a tick less",
    "resets a tick late",
    "leaves one more",
    "renews nothing",
    "forgets units when a limit changes",
    "never steps back",
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
    fault: &'static str,
    is_first: AtomicBool,
}

impl Wrong {
    fn new(clock: ManualClock, fault: &'static str) -> Self {
        let inner = MemoryStore::builder();
        let inner = match fault {
            "never steps back" => inner.clock(Monotonic { clock, latest: AtomicU64::new(0) }),
            _ => inner.clock(clock),
        };
        Self { inner: inner.build(), fault, is_first: AtomicBool::new(true) }
    }

    fn check(&self, mut check: Check) -> Check {
        match self.fault {
            "ignores floors" => check.floor = 0,
            "refuses in shadow mode" => check.mode = Mode::Enforce,
            "counts policies together" => {
                let (name, counter) = ("one".try_into().expect("a valid name"), &check.counter);
                check.counter = Counter::new(name, counter.key().clone(), *counter.quota());
            }
            "forgets units when a limit changes" => {
                let (name, counter) = (format!("of-{}", check.counter.quota().limit()), &check.counter);
                let name = PolicyName::try_from(name.as_str()).expect("a valid name");
                check.counter = Counter::new(name, counter.key().clone(), *counter.quota());
            }
            "limits by one more" => check.cost = check.cost.saturating_sub(1),
            "charges looks" => check.cost = check.cost.max(1),
            _ => {}
        }
        check
    }

    /// The outcome of a token bucket, of which one number is wrong.
    fn outcome(&self, outcome: &Outcome, check: &Check) -> Outcome {
        if outcome.quota().algorithm() != Algorithm::TokenBucket || outcome.is_banned() || check.cost == 0 {
            return outcome.clone();
        }
        let remaining = outcome.remaining() + u64::from(self.fault == "leaves one more");
        let less = if self.fault == "waits a tick less" { TICK } else { Duration::ZERO };
        let more = if self.fault == "resets a tick late" { TICK } else { Duration::ZERO };
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
            Change::Refund(units) if self.fault == "refunds twice" => Change::Refund(units.saturating_mul(2)),
            Change::Refund(_) if self.fault == "refunds nothing" => Change::Refund(0),
            Change::Renew(_) if self.fault == "renews nothing" => Change::Renew(0),
            Change::Charge(_) if self.fault == "charges nothing" => Change::Charge(0),
            other => other,
        }
    }
}

impl Store for Wrong {
    fn decide(&self, checks: &[Check], _: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        if self.fault == "fails" && !self.is_first.swap(false, Ordering::SeqCst) {
            return MaybeFuture::Ready(Err(Error::timeout("it is slow")));
        }
        let mut checks: Vec<Check> = checks.iter().cloned().map(|check| self.check(check)).collect();
        if self.fault == "counts repeats once" && checks.len() > 1 {
            let mut seen = BTreeSet::new();
            for check in &mut checks {
                if !seen.insert(format!("{:?}", check.counter)) {
                    check.cost = 0;
                }
            }
        }
        let decided = self.all_at_once(&checks);
        MaybeFuture::Ready(decided.map(|decided| match self.fault {
            "takes what fits of refused requests" if !decided.decision.is_allowed() => {
                for check in &checks {
                    let _ = self.all_at_once(std::slice::from_ref(check));
                }
                decided
            }
            "forgets one" => {
                let outcomes = decided.decision.outcomes();
                let kept = outcomes.iter().take(outcomes.len().saturating_sub(1)).cloned();
                StoreDecision::new(Decision::new(kept, decided.decision.source()), decided.receipt)
            }
            "waits a tick less" | "resets a tick late" | "leaves one more" => {
                let outcomes =
                    decided.decision.outcomes().iter().zip(&checks).map(|(one, check)| self.outcome(one, check));
                StoreDecision::new(Decision::new(outcomes, decided.decision.source()), decided.receipt)
            }
            "returns no receipt" => StoreDecision::new(decided.decision, Receipt::new(decided.receipt.store(), [])),
            _ => decided,
        }))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let changes: Vec<_> = match self.fault {
            "settles the first check only" => changes.iter().map(|one| Settlement::new(0, one.change)).collect(),
            _ => changes.iter().map(|one| Settlement::new(one.check, self.change(one.change))).collect(),
        };
        self.inner.settle(receipt, &changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let applied = |units| MaybeFuture::Ready(Ok(ChangeResult::new(units, 0)));
        match (self.fault, change) {
            ("resets nothing", Change::Reset) => applied(1),
            ("finds none" | "finds some always", Change::Reset) => {
                drop(self.inner.adjust(counter, change));
                applied(u64::from(self.fault == "finds some always"))
            }
            ("adjusts nothing", Change::Refund(_) | Change::Charge(_) | Change::Renew(_)) => applied(0),
            _ => self.inner.adjust(counter, self.change(change)),
        }
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        match self.fault {
            "supports nothing" if !requirements.is_empty() => Err(Error::invalid("it supports nothing")),
            _ => Capabilities::without_bans(requirements),
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
    for fault in FAULTS {
        let report = conformance(async |clock| Wrong::new(clock, fault)).await;
        assert!(report.differences().next().is_some(), "{fault}: {report}");
        let text = report.to_string();
        assert!(text.contains("differs: ") && text.len() < 250_000, "{fault}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn a_report_of_differences_panics_with_each_of_them() {
    let report = conformance(async |clock| Wrong::new(clock, "limits by one more")).await;
    let panicked = std::panic::catch_unwind(|| report.assert_passed()).expect_err("something differs");
    let text = panicked.downcast_ref::<String>().expect("a panic with a text");
    assert!(text.contains("tables.rs:") && text.contains("expected"), "{text}");
}

#[tokio::test]
async fn what_a_store_does_not_support_is_left_out_and_said() {
    let report = conformance(async |clock| Wrong::new(clock, "supports nothing")).await;
    assert_eq!(report.passed(), 1, "a request without checks: {report}");
    assert!(report.left_out().all(|(_, reason)| reason.contains("it supports nothing")), "{report}");
    assert!(report.left_out().count() > 40, "{report}");
}

#[tokio::test]
async fn a_history_repeats_with_its_seed_and_another_seed_is_another_history() {
    let run = async |seed| {
        let suite = Conformance::new(async |clock| Wrong::new(clock, "ignores floors")).seed(seed);
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
    let wrong = Conformance::new(async |_| Wrong::new(ManualClock::new(), "limits by one more"));
    let report = wrong.own_clock(Duration::from_secs(1)).run().await;
    assert!(report.differences().next().is_some(), "{report}");
}
