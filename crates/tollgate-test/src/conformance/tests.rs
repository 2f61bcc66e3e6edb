//! The suite finds what is wrong with a store, and nothing wrong with ours.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::policy::{Algorithm, PolicyName};
use tollgate::store::Requirement;
use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, Settlement, Settling,
    StoreDecision,
};
use tollgate::{Decision, Error, MemoryStore, Outcome};

use super::*;

/// What may be wrong with a store.
#[derive(Clone)]
#[allow(clippy::type_complexity, reason = "each is a closure")]
enum Fault {
    Checks(Arc<dyn Fn(&mut [Check]) + Send + Sync>),
    Decisions(Arc<dyn Fn(&MemoryStore, &[Check], StoreDecision) -> StoreDecision + Send + Sync>),
    Changes(Arc<dyn Fn(&mut Change) + Send + Sync>),
    FirstOnly,
    NeverStepsBack,
    Fails,
    SupportsNothing,
}

fn each(change: impl Fn(&mut Check) + Send + Sync + 'static) -> Fault {
    Fault::Checks(Arc::new(move |checks| checks.iter_mut().for_each(&change)))
}

fn decided(change: impl Fn(&[Check], StoreDecision) -> StoreDecision + Send + Sync + 'static) -> Fault {
    Fault::Decisions(Arc::new(move |_, checks, decided| change(checks, decided)))
}

/// Multiplies the units of one kind of change.
fn times(factor: u64, of: fn(u64) -> Change) -> Fault {
    Fault::Changes(Arc::new(move |change| {
        let (Change::Refund(units) | Change::Charge(units) | Change::Renew(units)) = *change else { return };
        if *change == of(units) {
            *change = of(units.saturating_mul(factor));
        }
    }))
}

fn by_one_more() -> Fault {
    each(|check| check.cost = check.cost.saturating_sub(1))
}

fn faults() -> Vec<(&'static str, Fault)> {
    let repeats_once = |checks: &mut [Check]| {
        let mut seen = BTreeSet::new();
        let repeats = checks.iter_mut().filter(|check| !seen.insert(format!("{:?}", check.counter)));
        repeats.for_each(|check| check.cost = 0);
    };
    let takes_what_fits = |store: &MemoryStore, checks: &[Check], decided: StoreDecision| {
        for check in checks.iter().filter(|_| !decided.decision.is_allowed()) {
            drop(store.decide(std::slice::from_ref(check), Ask::default()));
        }
        decided
    };
    let forgets_one = |checks: &[Check], decided: StoreDecision| {
        let kept = decided.decision.outcomes().iter().take(checks.len().saturating_sub(1)).cloned();
        StoreDecision::new(Decision::new(kept, decided.decision.source()), decided.receipt)
    };
    let no_receipt = |_: &[Check], decided: StoreDecision| {
        StoreDecision::new(decided.decision, Receipt::new(decided.receipt.store(), []))
    };
    let resets_nothing = |change: &mut Change| {
        *change = if *change == Change::Reset { Change::Charge(0) } else { *change };
    };
    vec![
        ("limits by one more", by_one_more()),
        ("ignores floors", each(|check| check.floor = 0)),
        ("refuses in shadow mode", each(|check| check.mode = Mode::Enforce)),
        ("charges looks", each(|check| check.cost = check.cost.max(1))),
        ("counts policies together", each(|check| rename(check, "one"))),
        (
            "forgets units when a limit changes",
            each(|check| rename(check, &format!("of-{}", check.counter.quota().limit()))),
        ),
        ("counts repeats once", Fault::Checks(Arc::new(repeats_once))),
        ("takes what fits of refused requests", Fault::Decisions(Arc::new(takes_what_fits))),
        ("forgets one", decided(forgets_one)),
        ("returns no receipt", decided(no_receipt)),
        ("leaves one more", decided(|checks, decided| moved(checks, decided, [1, 0, 0]))),
        ("waits a tick less", decided(|checks, decided| moved(checks, decided, [0, 1, 0]))),
        ("resets a tick late", decided(|checks, decided| moved(checks, decided, [0, 0, 1]))),
        ("refunds twice", times(2, Change::Refund)),
        ("refunds nothing", times(0, Change::Refund)),
        ("charges nothing", times(0, Change::Charge)),
        ("renews nothing", times(0, Change::Renew)),
        ("resets nothing", Fault::Changes(Arc::new(resets_nothing))),
        ("settles the first check only", Fault::FirstOnly),
        ("never steps back", Fault::NeverStepsBack),
        ("fails", Fault::Fails),
    ]
}

/// Has a check count under another name.
fn rename(check: &mut Check, name: &str) {
    let (name, counter) = (PolicyName::try_from(name).expect("a valid name"), &check.counter);
    check.counter = Counter::new(name, counter.key().clone(), *counter.quota());
}

/// Changes the outcomes of token buckets by units that remain, microseconds of a wait, and those of a reset.
fn moved(checks: &[Check], decided: StoreDecision, [more, less, later]: [u32; 3]) -> StoreDecision {
    let outcomes = decided.decision.outcomes().iter().zip(checks).map(|(outcome, check)| {
        if outcome.quota().algorithm() != Algorithm::TokenBucket || outcome.is_banned() || check.cost == 0 {
            return outcome.clone();
        }
        let remaining = outcome.remaining() + u64::from(more);
        let wrong = if outcome.is_allowed() {
            Outcome::allowed(check, remaining)
        } else {
            Outcome::denied(check, remaining, outcome.retry_after().map(|wait| wait.saturating_sub(less * TICK)))
        };
        wrong.with_reset_after(outcome.reset_after() + later * TICK)
    });
    StoreDecision::new(Decision::new(outcomes, decided.decision.source()), decided.receipt)
}

const TICK: Duration = Duration::from_micros(1);

/// A store in memory with a fault.
struct Wrong(MemoryStore, Fault);

impl Wrong {
    fn new(clock: ManualClock, fault: Fault) -> Self {
        let (latest, never_back) = (AtomicU64::new(0), matches!(fault, Fault::NeverStepsBack));
        let monotonic = move || {
            let now = u64::try_from(clock.now().as_micros()).expect("a time of a test");
            let latest = latest.fetch_max(now, Ordering::SeqCst).max(now);
            Duration::from_micros(if never_back { latest } else { now })
        };
        Self(MemoryStore::builder().clock(monotonic).build(), fault)
    }
}

impl Store for Wrong {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let mut checks = checks.to_vec();
        match &self.1 {
            Fault::Checks(change) => change(&mut checks),
            Fault::Fails if checks.len() > 1 => return MaybeFuture::Ready(Err(Error::timeout("it is slow"))),
            _ => {}
        }
        match (&self.1, self.0.decide(&checks, ask)) {
            (Fault::Decisions(change), MaybeFuture::Ready(Ok(decided))) => {
                MaybeFuture::Ready(Ok(change(&self.0, &checks, decided)))
            }
            (_, decided) => decided,
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let mut changes = changes.to_vec();
        for one in &mut changes {
            match &self.1 {
                Fault::Changes(change) => change(&mut one.change),
                Fault::FirstOnly => one.check = 0,
                _ => {}
            }
        }
        self.0.settle(receipt, &changes)
    }

    fn adjust(&self, counter: &Counter, mut change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        if let Fault::Changes(of) = &self.1 {
            of(&mut change);
        }
        self.0.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        match &self.1 {
            Fault::SupportsNothing if !requirements.is_empty() => Err(Error::invalid("it supports nothing")),
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
    for (name, fault) in faults() {
        let report = conformance(async |clock| Wrong::new(clock, fault.clone())).await;
        assert!(report.differences().next().is_some(), "{name}: {report}");
        let text = report.to_string();
        assert!(text.contains("differs: ") && text.len() < 250_000, "{name}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn a_report_of_differences_panics_with_each_of_them() {
    let report = conformance(async |clock| Wrong::new(clock, by_one_more())).await;
    let panicked = std::panic::catch_unwind(|| report.assert_passed()).expect_err("something differs");
    let text = panicked.downcast_ref::<String>().expect("a panic with a text");
    assert!(text.contains("tables.rs:") && text.contains("expected"), "{text}");
}

#[tokio::test]
async fn what_a_store_does_not_support_is_left_out_and_said() {
    let report = conformance(async |clock| Wrong::new(clock, Fault::SupportsNothing)).await;
    assert_eq!(report.passed(), 1, "a request without checks: {report}");
    assert!(report.left_out().all(|(_, reason)| reason.contains("it supports nothing")), "{report}");
    assert!(report.left_out().count() > 40, "{report}");
}

#[tokio::test]
async fn a_history_repeats_with_its_seed_and_another_seed_is_another_history() {
    let run = async |seed| {
        let suite = Conformance::new(async |clock| Wrong::new(clock, each(|check| check.floor = 0))).seed(seed);
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
    let wrong = Conformance::new(async |_| Wrong::new(ManualClock::new(), by_one_more()));
    let report = wrong.own_clock(Duration::from_secs(1)).run().await;
    assert!(report.differences().next().is_some(), "{report}");
}
