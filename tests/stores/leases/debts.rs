//! Admitted first and paid later: how much more than the limit that is at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Deadline, Decided, Mode, Requirement, Settlement, Store,
};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, HybridStore, MemoryStore, Quota, Source};

use super::definition::assert_admits;
use super::sim::{Far, bursts, ms, remaining, secs, take};
use crate::support::checks::{check, counter};
use crate::support::doubles::{away, passes_on};
use crate::support::slow::many;
use crate::support::time::memory;

const DAY: Quota = Quota::fixed_window(10_000, secs(86_400));

/// A minute of bursts; returns how many were admitted here, and there.
async fn simulate(processes: u64, quota: Quota, allowance: u64, height: u64, before: Duration, after: Duration) {
    let clock = ManualClock::paused();
    let far = Far::new(memory(&clock), before, after);
    let store = || HybridStore::builder(far.clone()).allowance(allowance).build().expect("the settings are right");
    let stores: Vec<_> = (0..processes).map(|_| store()).collect();
    let traffic = bursts(&stores, quota, &clock, height).await;
    let (admitted, locally) = (traffic.admitted.len() as u64, traffic.locally);
    println!("{processes}: {quota}: {} asked, {admitted} admitted, {locally} locally", traffic.asked);
    assert!(locally > 300, "only {locally} of {admitted} were admitted here");
    assert!(traffic.asked > admitted + 200, "the limit was hardly reached");
    assert_admits(&quota, &traffic.admitted, Duration::ZERO, (processes - 1) * allowance);
}

#[tokio::test(start_paused = true)]
async fn processes_together_admit_at_most_an_allowance_each_but_one_more_than_the_limit() {
    for processes in many([&[4][..], &[1, 4, 8]]).iter().copied() {
        let quotas = [
            Quota::token_bucket(1_200, secs(10)).burst(800),
            Quota::fixed_window(800, secs(5)),
            Quota::sliding_window(800, secs(5)),
            Quota::sliding_log(800, secs(5)),
        ];
        for quota in quotas.into_iter().take(many([1, usize::MAX])) {
            simulate(processes, quota, 80, (8 / processes).max(2), ms(40), ms(0)).await;
        }
        simulate(processes, Quota::per_second(300), 40, (8 / processes).max(2), ms(30), ms(70)).await;
    }
}

fn store(inner: impl Store) -> HybridStore {
    HybridStore::builder(inner).tick(ms(100)).allowance(50).build().expect("the settings are right")
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_is_charged_and_looked_at_once_a_tick_and_an_idle_one_never() {
    let far = Far::new(MemoryStore::new(), ms(10), ms(10));
    let store = store(far.clone());
    for _ in 0..100 {
        take(&store, "hot", DAY, 1).await;
        tokio::time::sleep(ms(10)).await;
    }
    tokio::time::sleep(secs(1)).await;
    let calls = far.calls();
    assert!((15..=20).contains(&calls), "{calls} calls in ten ticks");
    tokio::time::sleep(secs(60)).await;
    assert_eq!(far.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_request_of_a_key_waits_for_the_inner_store() {
    let store = store(Far::new(MemoryStore::new(), ms(50), ms(50)));
    assert_eq!(take(&store, "hot", DAY, 1).await, (true, Source::Store));
    for _ in 0..200 {
        assert_eq!(take(&store, "hot", DAY, 1).await, (true, Source::Lease));
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn closing_pays_all_that_was_admitted() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(20), ms(20)));
    for key in ["a", "b", "c"] {
        for _ in 0..40 {
            assert!(take(&store, key, DAY, 1).await.0);
        }
    }
    assert_eq!(remaining(&inner, "c", DAY).await, 9_999, "only the first was decided there");
    store.close().await.unwrap();
    for key in ["a", "b", "c"] {
        assert_eq!(remaining(&inner, key, DAY).await, 9_960);
    }
    assert_eq!(take(&store, "a", DAY, 1).await, (true, Source::Store));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_dropped_pays_too_and_callers_that_go_away_take_no_debt_along() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(20), ms(20)));
    take(&store, "hot", DAY, 1).await;
    let mut admitted = 1;
    for _ in 0..3_000 {
        match store.decide(&[check("hot", DAY, 1)], Ask::default()) {
            Answer::Ready(decided) => admitted += u64::from(decided.unwrap().decision.is_allowed()),
            // A caller that goes away before its question has left takes nothing.
            Answer::Pending(pending) => drop(tokio::time::timeout(ms(fastrand::u64(..15)), pending).await),
        }
    }
    drop(store);
    tokio::time::sleep(secs(1)).await;
    let used = 10_000 - remaining(&inner, "hot", DAY).await;
    assert!(admitted > 40 && used >= admitted, "{admitted} admitted, {used} used");
}

#[tokio::test(start_paused = true)]
async fn while_the_inner_store_is_away_the_allowance_is_admitted_and_then_its_errors_are_returned() {
    let memory = MemoryStore::new();
    let inner = FailingStore::new(memory.clone());
    let store = store(inner.clone());
    assert!(take(&store, "hot", DAY, 1).await.0);
    inner.fail_with(away);
    // Not at once: its errors are waited for.
    inner.delay(ms(1));
    let (mut admitted, mut errors) = (0, 0);
    for _ in 0..500 {
        match store.decide(&[check("hot", DAY, 1)], Ask::default()).wait().await {
            Ok(decided) => admitted += u64::from(decided.decision.is_allowed()),
            Err(error) => errors += u64::from(error.is_store()),
        }
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!((admitted, errors), (50, 450));
    inner.work();
    tokio::time::sleep(ms(200)).await;
    assert_eq!(remaining(&memory, "hot", DAY).await, 9_949, "the debt was not forgotten");
    assert!(take(&store, "hot", DAY, 1).await.0);
}

/// What becomes of what a store is asked.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    /// It is done, and the answer comes too late.
    Late,
    /// It is not done, and there is no answer.
    Lost,
    /// It is done after so long.
    Slow(Duration),
}

/// A store that keeps to a budget of 100 ms, and counts charges. A `FailingStore` neither does what fails nor tells looks
/// from the rest.
#[derive(Clone)]
struct Flaky {
    inner: MemoryStore,
    fate: Arc<Mutex<Fate>>,
    /// Looks are answered whatever becomes of the rest.
    looks: bool,
    charges: Arc<AtomicU64>,
}

const BUDGET: Duration = ms(100);

impl Flaky {
    fn new(looks: bool) -> Self {
        Self { inner: MemoryStore::new(), fate: Arc::new(Mutex::new(Fate::Answered)), looks, charges: Arc::default() }
    }

    fn becomes(&self, fate: Fate) {
        *self.fate.lock().expect("nobody panics here") = fate;
    }

    fn charges(&self) -> u64 {
        self.charges.load(Ordering::Relaxed)
    }

    fn answer<T: Send + 'static>(
        &self,
        fate: Fate,
        deadline: Deadline,
        ask: impl FnOnce(&MemoryStore) -> Answer<Result<T, Error>> + Send + 'static,
    ) -> Answer<Result<T, Error>> {
        let inner = self.inner.clone();
        Answer::pending(async move {
            let answer = if fate == Fate::Lost { None } else { Some(ask(&inner)) };
            match (fate, answer) {
                (Fate::Answered, Some(answer)) => answer.wait().await,
                (Fate::Slow(time), Some(answer)) => {
                    let left = deadline.remaining().unwrap_or(BUDGET);
                    tokio::time::sleep(time.min(left)).await;
                    if time > left {
                        Err(Error::store("no answer in time", "it is a test"))
                    } else {
                        answer.wait().await
                    }
                }
                _ => {
                    tokio::time::sleep(BUDGET).await;
                    Err(Error::store("no answer in time", "it is a test"))
                }
            }
        })
    }

    fn fate(&self) -> Fate {
        *self.fate.lock().expect("nobody panics here")
    }
}

impl Store for Flaky {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        let (look, checks) = (checks.iter().all(|check| check.cost == 0), checks.to_vec());
        let fate = if look && self.looks { Fate::Answered } else { self.fate() };
        self.answer(fate, ask.deadline, move |inner| inner.decide(&checks, ask))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        if change == Change::Reset {
            return self.inner.adjust(counter, change);
        }
        self.charges.fetch_add(u64::from(matches!(change, Change::Charge(_))), Ordering::Relaxed);
        let counter = counter.clone();
        self.answer(self.fate(), Deadline::none(), move |inner| inner.adjust(&counter, change))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::without_bans(requirements)?.budget(BUDGET))
    }

    passes_on!(inner: settle);
}

/// A hybrid store that owes 3 units; one more was decided by the inner store.
async fn owing(inner: &Flaky) -> HybridStore {
    let store = store(inner.clone());
    for source in [Source::Store, Source::Lease, Source::Lease, Source::Lease] {
        assert_eq!(take(&store, "hot", DAY, 1).await, (true, source));
    }
    store
}

/// How many units were counted, and how many charges were sent, when a store answered again that had
/// not for some time.
async fn counted_after(fate: Fate, looks: bool, time: Duration) -> (u64, u64) {
    let inner = Flaky::new(looks);
    let store = owing(&inner).await;
    inner.becomes(fate);
    tokio::time::sleep(time).await;
    inner.becomes(Fate::Answered);
    tokio::time::sleep(secs(1)).await;
    let charges = inner.charges();
    assert!(take(&store, "hot", DAY, 1).await.0);
    store.close().await.expect("nothing is owed");
    (10_000 - remaining(&inner.inner, "hot", DAY).await - 2, charges)
}

#[tokio::test(start_paused = true)]
async fn units_count_at_most_once_more_than_they_were_used_however_long_answers_are_late() {
    for (time, looks) in [(ms(150), false), (secs(14), false), (ms(150), true), (secs(14), true)] {
        assert_eq!(counted_after(Fate::Late, looks, time).await, (6, 2), "late for {time:?}, looks: {looks}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_was_lost_is_sent_again_when_the_store_answers() {
    for time in [ms(150), secs(14)] {
        assert_eq!(counted_after(Fate::Lost, false, time).await, (3, 2), "lost for {time:?}");
    }
    assert_eq!(counted_after(Fate::Lost, true, secs(14)).await, (0, 2), "both are lost, as looks are answered");
}

#[tokio::test(start_paused = true)]
async fn requests_send_no_more_charges_than_the_ticks() {
    let inner = Flaky::new(true);
    let store = owing(&inner).await;
    inner.becomes(Fate::Late);
    for _ in 0..50 {
        store.decide(&[check("hot", DAY, 60)], Ask::default()).wait().await.expect_err("there is no answer");
    }
    assert_eq!(inner.charges(), 2);
}

#[tokio::test(start_paused = true)]
async fn paying_and_deciding_take_one_budget() {
    for (each, decides) in [(ms(30), true), (ms(45), true), (ms(60), false), (ms(99), false)] {
        let inner = Flaky::new(false);
        let store = owing(&inner).await;
        inner.becomes(Fate::Slow(each));
        let start = tokio::time::Instant::now();
        let decided = store.decide(&[check("hot", DAY, 60)], Ask::default()).wait().await;
        assert_eq!(decided.is_ok(), decides, "{each:?} for each of two answers");
        assert!(start.elapsed() <= BUDGET + ms(1), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn units_given_back_while_nobody_knows_whether_they_were_charged_are_not_charged_again() {
    let inner = Flaky::new(false);
    let store = store(inner.clone());
    take(&store, "hot", DAY, 1).await;
    let decided = store.decide(&[check("hot", DAY, 10)], Ask::default()).wait().await.unwrap();
    inner.becomes(Fate::Lost);
    tokio::time::sleep(ms(250)).await;
    drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(4))]));
    inner.becomes(Fate::Answered);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(remaining(&inner.inner, "hot", DAY).await, 10_000 - 7);
}

#[tokio::test(start_paused = true)]
async fn refunds_lower_the_debt_and_what_was_paid_already_goes_back() {
    for pause in [0, 500] {
        let inner = MemoryStore::new();
        let store = store(inner.clone());
        take(&store, "hot", DAY, 1).await;
        let decided = store.decide(&[check("hot", DAY, 10)], Ask::default()).wait().await.unwrap();
        assert_eq!(decided.decision.source(), Source::Lease);
        tokio::time::sleep(ms(pause)).await;
        drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(4))]));
        store.close().await.unwrap();
        assert_eq!(remaining(&inner, "hot", DAY).await, 9_993, "after {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn several_checks_are_owed_together_or_not_at_all() {
    let inner = MemoryStore::new();
    let store = store(inner.clone());
    let few = Quota::fixed_window(30, secs(86_400));
    let mut admitted = 0;
    for turn in 0..300 {
        let mode = if turn % 2 == 0 { Mode::Enforce } else { Mode::default() };
        let checks = [check("wide", DAY, 1), check("few", few, 1).mode(mode)];
        admitted += u64::from(store.decide(&checks, Ask::default()).wait().await.unwrap().decision.is_allowed());
    }
    assert_eq!(admitted, 30);
    store.close().await.unwrap();
    assert_eq!(remaining(&inner, "wide", DAY).await, 10_000 - 30);
    assert_eq!(remaining(&inner, "few", few).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_debt() {
    let inner = MemoryStore::new();
    let store = store(inner.clone());
    for _ in 0..20 {
        take(&store, "hot", DAY, 1).await;
    }
    store.adjust(&counter("hot", DAY), Change::Reset).wait().await.unwrap();
    store.close().await.unwrap();
    assert_eq!(remaining(&inner, "hot", DAY).await, 10_000);
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_can() {
    let builder = || HybridStore::builder(MemoryStore::new());
    for (settings, words) in [
        (builder().allowance(0), "at least 1"),
        (builder().tick(Duration::ZERO), "at most 60s"),
        (builder().tick(secs(61)), "at most 60s"),
    ] {
        let error = settings.build().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(words), "{error}");
    }
}
