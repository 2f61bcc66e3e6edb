//! What debts and metered charges leave after refunds, resets and lost answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{
    Answer, Applied, Ask, Change, Counter, Decided, Receipt, Settlement, Settling, Store, StoreId, Taken,
};
use tollgate::{Error, HybridStore, MemoryStore, Quota, Source};

use super::sim::{Far, ms, remaining, secs, take};
use crate::support::checks::{check, counter};
use crate::support::doubles::passes_on;

const DAY: Duration = secs(86_400);
const HUNDRED: Quota = Quota::fixed_window(100, DAY);
const AMPLE: Quota = Quota::fixed_window(10_000, DAY);

fn store(inner: impl Store) -> HybridStore {
    HybridStore::builder(inner).tick(ms(100)).allowance(50).build().expect("the settings are right")
}

/// Units counted, past the limit too.
async fn counted(inner: &MemoryStore) -> u64 {
    10_000 - remaining(inner, "hot", AMPLE).await
}

async fn decided(store: &impl Store, quota: Quota, cost: u64) -> Decided {
    let decided = store.decide(&[check("hot", quota, cost)], Ask::default()).wait().await.expect("a store answers");
    assert!(decided.decision.is_allowed());
    decided
}

/// What can be settled in parts, as an account does.
fn parts(decided: &Decided) -> (StoreId, Taken) {
    (decided.receipt.store(), decided.receipt.taken()[0].clone())
}

fn settle(store: &impl Store, (id, taken): &(StoreId, Taken), change: Change) -> Settling {
    store.settle(Receipt::new(*id, [taken.clone()]), &[Settlement::new(0, change)])
}

async fn applied(settling: Settling) -> Applied {
    settling.wait().await.expect("a store answers").remove(0)
}

/// Admits what it can here and now; returns the units.
fn admit_all(store: &impl Store, quota: Quota) -> u64 {
    let here = |_: &u64| matches!(store.decide(&[check("hot", quota, 1)], Ask::default()), Answer::Ready(_));
    (0..1_000).take_while(here).count() as u64
}

#[derive(Clone, Copy, Debug)]
enum By {
    AdmittedHere,
    DecidedThere,
    Staff,
}

#[tokio::test(start_paused = true)]
async fn a_metered_charge_lowers_what_is_admitted_at_once() {
    for by in [By::AdmittedHere, By::DecidedThere, By::Staff] {
        let inner = MemoryStore::new();
        let store = store(Far::new(inner.clone(), ms(50), ms(0)));
        let there = decided(&store, HUNDRED, 1).await;
        let here = decided(&store, HUNDRED, 1).await;
        assert_eq!((there.decision.source(), here.decision.source()), (Source::Store, Source::Lease));
        let charge = Change::Charge(90);
        match by {
            By::AdmittedHere => drop(settle(&store, &parts(&here), charge)),
            By::DecidedThere => drop(settle(&store, &parts(&there), charge)),
            By::Staff => drop(tokio::spawn(async_answer(store.adjust(&counter("hot", HUNDRED), charge)))),
        }
        assert_eq!(admit_all(&store, HUNDRED), 8, "{by:?}: 92 of 100 are used");
        tokio::time::sleep(secs(2)).await;
        assert_eq!(counted(&inner).await, 100, "{by:?}");
    }
}

async fn async_answer<T>(answer: Answer<T>) {
    drop(answer.wait().await);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_a_metered_charge_overtakes_does_not_raise_what_is_admitted() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(20), ms(60)));
    let _there = decided(&store, HUNDRED, 1).await;
    let here = parts(&decided(&store, HUNDRED, 1).await);
    // The tick's charge is answered after 180 ms, and the look is decided after 200.
    tokio::time::sleep(ms(190)).await;
    drop(settle(&store, &here, Change::Charge(90)));
    tokio::time::sleep(ms(75)).await;
    assert_eq!(admit_all(&store, HUNDRED), 8);
}

#[tokio::test(start_paused = true)]
async fn nothing_taken_before_a_reset_is_given_back_after_it() {
    for pause in [0, 110, 500] {
        let inner = MemoryStore::new();
        let store = store(Far::new(inner.clone(), ms(0), ms(50)));
        let there = parts(&decided(&store, HUNDRED, 5).await);
        let here = parts(&decided(&store, HUNDRED, 7).await);
        let metered = applied(settle(&store, &here, Change::Charge(6))).await;
        let metered = (here.0, here.1.clone().units(metered.units).stamp(metered.stamp));
        let metered_there = applied(settle(&store, &there, Change::Charge(4))).await;
        let metered_there = (there.0, there.1.clone().units(4).stamp(metered_there.stamp));
        tokio::time::sleep(ms(pause)).await;
        store.adjust(&counter("hot", HUNDRED), Change::Reset).wait().await.expect("a store answers");
        let late = counted(&inner).await;
        let _others = decided(&store, HUNDRED, 30).await;
        for part in [&there, &here, &metered, &metered_there] {
            let back = applied(settle(&store, part, Change::Refund(part.1.units))).await;
            assert_eq!(back.units, 0, "after {pause} ms: {part:?}");
        }
        tokio::time::sleep(secs(1)).await;
        assert_eq!(counted(&inner).await, 30 + late, "after {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_after_a_reset_can_be_given_back() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(0), ms(50)));
    let _before = decided(&store, HUNDRED, 5).await;
    store.adjust(&counter("hot", HUNDRED), Change::Reset).wait().await.expect("a store answers");
    let there = parts(&decided(&store, HUNDRED, 5).await);
    let here = parts(&decided(&store, HUNDRED, 7).await);
    let metered = applied(settle(&store, &here, Change::Charge(6))).await;
    let metered = (here.0, here.1.clone().units(metered.units).stamp(metered.stamp));
    tokio::time::sleep(secs(1)).await;
    assert_eq!(counted(&inner).await, 18);
    for (part, left) in [(&there, 13), (&here, 6), (&metered, 0)] {
        let back = applied(settle(&store, part, Change::Refund(part.1.units))).await;
        assert_eq!((back.units, counted(&inner).await), (part.1.units, left));
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_was_cut_gives_back_only_what_is_not_owed() {
    for (pause, back, left) in [(110, 4, 200), (110, 8, 198), (500, 4, 200), (500, 8, 198)] {
        let inner = MemoryStore::new();
        let store = store(Far::new(inner.clone(), ms(0), ms(50)));
        let _there = decided(&store, HUNDRED, 1).await;
        let here = parts(&decided(&store, HUNDRED, 10).await);
        inner.adjust(&counter("hot", HUNDRED), Change::Charge(195)).wait().await.expect("memory answers");
        // At its bound, the store takes 4 of the 10 units.
        tokio::time::sleep(ms(pause)).await;
        drop(settle(&store, &here, Change::Refund(back)));
        tokio::time::sleep(secs(1)).await;
        assert_eq!(counted(&inner).await, left, "{back} units are refunded after {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_says_what_was_given_back() {
    let inner = MemoryStore::new();
    let store = store(inner.clone());
    let _there = decided(&store, AMPLE, 1).await;
    let old = parts(&decided(&store, AMPLE, 3).await);
    for _ in 0..16 {
        tokio::time::sleep(ms(150)).await;
        let _newer = decided(&store, AMPLE, 1).await;
    }
    tokio::time::sleep(ms(150)).await;
    let before = counted(&inner).await;
    let back = applied(settle(&store, &old, Change::Refund(3))).await;
    assert_eq!((back.units, counted(&inner).await), (0, before), "it was charged too long ago");
}

#[tokio::test(start_paused = true)]
async fn a_metered_charge_that_is_not_sent_says_that_nothing_was_applied() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(50), ms(50)));
    let _there = decided(&store, AMPLE, 1).await;
    let here = parts(&decided(&store, AMPLE, 2).await);
    let answers: Vec<_> = (0..4_200).map(|_| settle(&store, &here, Change::Charge(1))).collect();
    let mut charged = 0;
    for answer in answers {
        let applied = applied(answer).await;
        charged += applied.units;
        let part = (here.0, here.1.clone().units(applied.units).stamp(applied.stamp));
        drop(settle(&store, &part, Change::Refund(1)));
    }
    tokio::time::sleep(secs(1)).await;
    assert_eq!((charged, counted(&inner).await), (4_096, 3));
}

#[tokio::test(start_paused = true)]
async fn a_refund_makes_no_room_that_others_have_used() {
    let inner = MemoryStore::new();
    let store = store(Far::new(inner.clone(), ms(20), ms(20)));
    let _there = decided(&store, HUNDRED, 1).await;
    let _here = decided(&store, HUNDRED, 10).await;
    assert!(take(&inner, "hot", HUNDRED, 89).await.0);
    // While the store is looked at, this process does not know of it.
    tokio::time::sleep(ms(150)).await;
    let here = parts(&decided(&store, HUNDRED, 8).await);
    tokio::time::sleep(ms(40)).await;
    drop(settle(&store, &here, Change::Refund(8)));
    assert_eq!(admit_all(&store, HUNDRED), 0, "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_look_at_a_limit_that_was_lowered_does_not_raise_what_is_admitted() {
    let inner = MemoryStore::new();
    let store = store(inner.clone());
    let low = Quota::fixed_window(10, DAY);
    let _there = decided(&store, AMPLE, 1).await;
    let _here = decided(&store, AMPLE, 2).await;
    let _lowered = decided(&store, low, 1).await;
    let mut admitted = 1;
    for _ in 0..5 {
        admitted += admit_all(&store, low);
        tokio::time::sleep(ms(150)).await;
    }
    assert!(counted(&inner).await <= 10, "{admitted} were admitted here of 10");
}

const LOST: u8 = 1;
const ANSWERED: u8 = 0;

/// A store that loses charges, and answers the rest; a `FailingStore` would lose looks too.
#[derive(Clone)]
struct Losing {
    inner: MemoryStore,
    fate: Arc<AtomicU8>,
    charges: Arc<AtomicUsize>,
}

impl Losing {
    fn new() -> Self {
        Self { inner: MemoryStore::new(), fate: Arc::default(), charges: Arc::default() }
    }
}

impl Store for Losing {
    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        if change == Change::Reset {
            return self.inner.adjust(counter, change);
        }
        self.charges.fetch_add(1, Ordering::SeqCst);
        if self.fate.load(Ordering::SeqCst) == ANSWERED {
            return self.inner.adjust(counter, change);
        }
        Answer::pending(async {
            tokio::time::sleep(ms(30)).await;
            Err(Error::store("no answer in time", "it is a test"))
        })
    }

    passes_on!(inner: decide, settle);
}

#[tokio::test(start_paused = true)]
async fn units_lost_twice_take_nothing_of_others_along_when_they_are_refunded() {
    for is_late in [false, true] {
        let inner = Losing::new();
        let store = store(inner.clone());
        let _there = decided(&store, AMPLE, 1).await;
        let first = parts(&decided(&store, AMPLE, 10).await);
        inner.fate.store(LOST, Ordering::SeqCst);
        tokio::time::sleep(ms(140)).await;
        let _second = decided(&store, AMPLE, 5).await;
        while inner.charges.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(ms(5)).await;
        }
        tokio::time::sleep(ms(40)).await;
        if is_late {
            inner.fate.store(ANSWERED, Ordering::SeqCst);
            tokio::time::sleep(secs(1)).await;
        }
        // Its units were never counted.
        drop(settle(&store, &first, Change::Refund(10)));
        inner.fate.store(ANSWERED, Ordering::SeqCst);
        tokio::time::sleep(secs(1)).await;
        assert_eq!(counted(&inner.inner).await, 1 + 5, "late: {is_late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_lost_before_a_reset_is_not_sent_again_after_it() {
    let inner = Losing::new();
    let store = store(inner.clone());
    let _there = decided(&store, AMPLE, 1).await;
    let _here = decided(&store, AMPLE, 10).await;
    inner.fate.store(LOST, Ordering::SeqCst);
    tokio::time::sleep(ms(110)).await;
    assert_eq!(inner.charges.load(Ordering::SeqCst), 1, "it is on its way");
    store.adjust(&counter("hot", AMPLE), Change::Reset).wait().await.expect("a store answers");
    inner.fate.store(ANSWERED, Ordering::SeqCst);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(counted(&inner.inner).await, 0);
}

#[test]
fn debts_of_a_runtime_that_ended_are_paid_from_the_next() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let inner = MemoryStore::new();
    let store = store(inner.clone());
    runtime().expect("there is room for one").block_on(async {
        let _there = decided(&store, AMPLE, 1).await;
        let _here = decided(&store, AMPLE, 3).await;
    });
    runtime().expect("there is room for one").block_on(async {
        assert_eq!(decided(&store, AMPLE, 2).await.decision.source(), Source::Lease);
        tokio::time::sleep(secs(1)).await;
        assert_eq!(counted(&inner).await, 6);
    });
}
