//! Leases that are overdrawn while the next one is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tollgate::store::LeaseStore;
use tollgate::store::{
    Ask, Change, Check, MaybeFuture, Mode, Receipt, ReceiptItem, Settlement, Settling, Store, StoreDecision, StoreId,
};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, MemoryStore, Quota, Source};

use super::bounds::{Course, assert_balanced, simulate};
use super::sim::{Far, micros, ms, remaining, secs, take};
use crate::support::checks::{check, counter};
use crate::support::doubles::{away, passes_on};
use crate::support::slow::many;
use crate::support::time::memory;

const DAY: Quota = Quota::fixed_window(10_000, secs(86_400));
/// Each way of a far link.
const WAY: Duration = ms(80);

fn overdrawn(inner: impl Store, clock: &ManualClock, overdraft: u64) -> LeaseStore {
    LeaseStore::builder(inner).overdraft(overdraft).clock(clock.clone()).build()
}

/// Asks without waiting; `None` if the inner store has to decide, which is not asked then.
fn here(store: &LeaseStore, quota: Quota, cost: u64) -> Option<StoreDecision> {
    let answer = store.decide(&[check("hot", quota, cost)], Ask::default());
    let decided = answer.wait().now_or_never()?.expect("a store answers");
    (decided.decision.source() == Source::Lease).then_some(decided)
}

/// Takes units by single requests until leases of the key are in use, and the link is idle; returns how many.
async fn warm(store: &LeaseStore, quota: Quota) -> u64 {
    let mut tasks = tokio::task::JoinSet::new();
    while here(store, quota, 1).is_none() {
        let one = store.clone();
        tasks.spawn(async move { assert!(take(&one, "hot", quota, 1).await.0) });
        tokio::time::sleep(ms(10)).await;
        assert!(tasks.len() < 100, "it is never leased: {:?}", store.counts());
    }
    // Not so long that the key is idle.
    tokio::time::sleep(ms(300)).await;
    tasks.join_all().await.len() as u64 + 1
}

/// Units that the inner store has counted, beyond the limit too.
async fn used(inner: &MemoryStore, quota: Quota) -> u64 {
    let ample = Quota::fixed_window(1_000_000, quota.window());
    1_000_000 - remaining(inner, "hot", ample).await
}

/// Requests at a rate for so long; returns how many there were, were admitted, and were admitted here after the first
/// two seconds.
async fn load(store: &LeaseStore, quota: Quota, every: Duration, seconds: u64) -> (u64, u64, u64, u64) {
    let (start, mut tasks) = (tokio::time::Instant::now(), tokio::task::JoinSet::new());
    let (mut late, mut locally) = (0, 0);
    while start.elapsed() < secs(seconds) {
        let is_late = start.elapsed() > secs(2);
        late += u64::from(is_late);
        match store.decide(&[check("hot", quota, 1)], Ask::default()) {
            MaybeFuture::Ready(decided) => {
                let decided = decided.expect("a store answers");
                assert_eq!(decided.decision.source(), Source::Lease);
                locally += u64::from(is_late);
                tasks.spawn(std::future::ready(true));
            }
            MaybeFuture::Pending(pending) => {
                tasks.spawn(async move { pending.await.expect("a store answers").decision.is_allowed() });
            }
        }
        tokio::time::sleep(every).await;
    }
    let asked = tasks.len() as u64;
    let admitted = tasks.join_all().await.into_iter().filter(|admitted| *admitted).count() as u64;
    (asked, admitted, late, locally)
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_on_a_far_link_waits_for_nothing_below_its_limit() {
    for (quota, every, overdraft) in [
        (Quota::per_second(1_000), ms(3), 150),
        (Quota::fixed_window(1_000, secs(1)), ms(3), 150),
        (Quota::token_bucket(60_000, secs(60)).burst(1_000), ms(3), 100),
        // A few requests a round trip, which no lease would be worth a call for.
        (Quota::per_second(1_000), ms(40), 20),
    ] {
        let clock = ManualClock::paused();
        let store = overdrawn(Far::new(memory(&clock), WAY, WAY), &clock, overdraft);
        let (asked, admitted, late, locally) = load(&store, quota, every, 10).await;
        println!("{quota}: {asked} asked, {locally} of {late} locally, {:?}", store.counts());
        assert_eq!(admitted, asked, "{quota}");
        assert!(locally * 100 >= late * 97, "{quota}: {locally} of {late}");
        store.close().await;
        let counts = store.counts();
        assert_balanced(&counts);
        assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn processes_together_admit_at_most_an_overdraft_each_more_than_the_limit() {
    let now = Duration::ZERO;
    let rows = [
        (4, Quota::token_bucket(1_200, secs(10)).burst(800), 80, (ms(40), now)),
        (8, Quota::fixed_window(300, secs(1)), 30, (ms(160), now)),
        (4, Quota::per_second(300), 40, (ms(30), ms(70))),
        (4, Quota::fixed_window(800, secs(5)), 80, (ms(40), now)),
        (4, Quota::sliding_window(800, secs(5)), 80, (ms(40), now)),
        (4, Quota::sliding_log(800, secs(5)), 80, (ms(40), now)),
        (1, Quota::token_bucket(1_200, secs(10)).burst(800), 80, (ms(40), now)),
        (8, Quota::sliding_log(800, secs(5)), 80, (ms(40), now)),
    ];
    for (processes, quota, overdraft, way) in rows.into_iter().take(many([3, usize::MAX])) {
        simulate(Course { processes, quota, overdraft, height: (8 / processes).max(2), share: 0.1, way }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_overdrawn_in_a_new_window_is_not_paid_by_a_lease_of_the_one_before() {
    let (clock, quota) = (ManualClock::paused(), Quota::fixed_window(1_000, secs(10)));
    let inner = memory(&clock);
    // What is asked is decided at once, and the answer travels.
    let store = overdrawn(Far::new(inner.clone(), ms(0), 2 * WAY), &clock, 50);
    // Until so long before the end of the window.
    let sleep_until = |before: u64| tokio::time::sleep(ms(10_000 - micros(&clock) / 1_000 % 10_000 - before));
    sleep_until(900).await;
    warm(&store, quota).await;
    sleep_until(50).await;
    while store.counts().owed == 0 {
        assert!(here(&store, quota, 1).is_some(), "{:?}", store.counts());
    }
    tokio::time::sleep(ms(60)).await;
    let admitted = (0..20).filter(|_| here(&store, quota, 1).is_some()).count() as u64;
    assert_eq!(admitted, 20, "{:?}", store.counts());
    tokio::time::sleep(secs(1)).await;
    store.close().await;
    let used = 1_000 - remaining(&inner, "hot", quota).await;
    assert!(used >= admitted, "{admitted} were admitted in the window, and {used} are counted in it");
}

#[tokio::test(start_paused = true)]
async fn closing_charges_all_that_was_admitted_and_so_does_dropping_the_store() {
    for closes in [true, false] {
        for pause in [0, 40, 100, 200] {
            let clock = ManualClock::paused();
            let inner = memory(&clock);
            let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, 50);
            let before = warm(&store, DAY).await;
            let admitted = (0..200).filter(|_| here(&store, DAY, 1).is_some()).count() as u64;
            assert!(store.counts().owed >= 40, "{:?}", store.counts());
            tokio::time::sleep(ms(pause)).await;
            if closes {
                store.close().await;
                let counts = store.counts();
                assert_balanced(&counts);
                assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
                assert_eq!(used(&inner, DAY).await, before + admitted, "after {pause} ms");
            }
            drop(store);
            tokio::time::sleep(secs(2)).await;
            assert_eq!(used(&inner, DAY).await, before + admitted, "after {pause} ms, closed: {closes}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_inner_store_is_away_an_overdraft_is_owed_and_then_its_errors_are_returned() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let failing = FailingStore::new(inner.clone());
    failing.delay(ms(1));
    let store = overdrawn(failing.clone(), &clock, 50);
    warm(&store, DAY).await;
    let before = (store.counts().spent, store.counts().held());
    failing.fail_with(away);
    let (mut admitted, mut errors) = (0, 0);
    for _ in 0..500 {
        match store.decide(&[check("hot", DAY, 1)], Ask::default()).wait().await {
            Ok(decided) => admitted += u64::from(decided.decision.is_allowed()),
            Err(error) => errors += u64::from(error.is_store()),
        }
        tokio::time::sleep(ms(5)).await;
    }
    assert!(admitted <= before.1 + 50 && errors >= 430, "{admitted} admitted, {errors} errors");
    assert_eq!(store.counts().spent - before.0, admitted);
    failing.work();
    tokio::time::sleep(ms(200)).await;
    assert!(take(&store, "hot", DAY, 1).await.0);
    store.close().await;
    assert_balanced(&store.counts());
}

/// A store that does what it is asked after a while, unless it hangs. Some of its settlements panic, or are lost.
#[derive(Clone)]
struct Rough {
    far: Far,
    hangs: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    loses: Arc<AtomicBool>,
    charges: Arc<AtomicU64>,
}

impl Rough {
    fn new(inner: MemoryStore) -> Self {
        let far = Far::new(inner, WAY, WAY);
        Self { far, hangs: Arc::default(), panics: Arc::default(), loses: Arc::default(), charges: Arc::default() }
    }
}

impl Store for Rough {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        assert!(!self.panics.load(Ordering::SeqCst), "it panics");
        if self.hangs.load(Ordering::SeqCst) {
            return MaybeFuture::pending(std::future::pending());
        }
        self.far.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let is_charge = matches!(changes, [Settlement { change: Change::Charge(_), .. }]);
        self.charges.fetch_add(u64::from(is_charge), Ordering::SeqCst);
        if is_charge && self.loses.load(Ordering::SeqCst) {
            return MaybeFuture::Ready(Err(away()));
        }
        self.far.settle(receipt, changes)
    }

    passes_on!(far: adjust);
}

/// A store over a rough one, which has leased what is in use.
async fn rough() -> (LeaseStore, Rough, MemoryStore) {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let rough = Rough::new(inner.clone());
    let store = overdrawn(rough.clone(), &clock, 50);
    warm(&store, DAY).await;
    (store, rough, inner)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_owed_no_more_than_the_overdraft() {
    let (store, rough, _) = rough().await;
    rough.hangs.store(true, Ordering::SeqCst);
    let held = store.counts().held();
    let admitted = (0..500).filter(|_| here(&store, DAY, 1).is_some()).count() as u64;
    assert_eq!((admitted, store.counts().owed), (held + 50, 50));
    tokio::time::sleep(secs(10)).await;
    assert!(here(&store, DAY, 1).is_none());
    assert_eq!(rough.charges.load(Ordering::SeqCst), 0, "the call may be answered yet");
}

#[tokio::test(start_paused = true)]
async fn a_charge_whose_reply_is_lost_is_not_sent_again() {
    let (store, rough, inner) = rough().await;
    let held = store.counts().held();
    inner.adjust(&counter("hot", DAY), Change::Charge(10_000)).wait().await.expect("memory answers");
    rough.loses.store(true, Ordering::SeqCst);
    let admitted = (0..500).filter(|_| here(&store, DAY, 1).is_some()).count() as u64;
    assert_eq!(admitted, held + 50);
    tokio::time::sleep(secs(2)).await;
    let counts = store.counts();
    assert_balanced(&counts);
    assert_eq!((rough.charges.load(Ordering::SeqCst), counts.owed), (1, 0), "it may have been made");
    drop(store);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(rough.charges.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_a_lease_call_leaves_what_is_owed_to_a_charge() {
    let (store, rough, inner) = rough().await;
    let before = store.counts();
    let used_before = used(&inner, DAY).await;
    while here(&store, DAY, 1).is_some() {}
    tokio::time::sleep(secs(2)).await;
    rough.panics.store(true, Ordering::SeqCst);
    let asked = std::panic::AssertUnwindSafe(async { take(&store, "hot", DAY, 1).await });
    assert!(asked.catch_unwind().await.is_err());
    rough.panics.store(false, Ordering::SeqCst);
    tokio::time::sleep(secs(2)).await;
    store.close().await;
    let counts = store.counts();
    assert_balanced(&counts);
    assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
    let failed = counts.lost - before.lost;
    let more = counts.leased - before.leased - failed - (counts.returned - before.returned);
    assert_eq!(used(&inner, DAY).await - used_before, more, "{counts:?}");
}

/// What can be settled in parts, as an account does.
fn settle(store: &LeaseStore, (id, taken): &(StoreId, ReceiptItem), change: Change) -> Settling {
    store.settle(Receipt::new(*id, [taken.clone()]), &[Settlement::new(0, change)])
}

/// A store with an overdraft on a far link, and a part of 10 units that were overdrawn; how many units were used
/// besides, when all is paid.
async fn owing() -> (LeaseStore, MemoryStore, (StoreId, ReceiptItem), u64) {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, 50);
    let mut others = warm(&store, DAY).await;
    while store.counts().owed == 0 {
        assert!(here(&store, DAY, 1).is_some(), "{:?}", store.counts());
        others += 1;
    }
    let decided = here(&store, DAY, 10).expect("it may be owed");
    let part = (decided.receipt.store(), decided.receipt.items()[0].clone());
    (store, inner, part, others)
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_what_was_paid_too_long_ago_says_that_nothing_was_given_back() {
    let (store, inner, part, _) = owing().await;
    for _ in 0..40 {
        tokio::time::sleep(ms(500)).await;
        while here(&store, DAY, 1).is_some() {}
    }
    tokio::time::sleep(secs(1)).await;
    let before = used(&inner, DAY).await;
    let applied = settle(&store, &part, Change::Refund(4)).wait().await.expect("a store answers").remove(0);
    assert_eq!((applied.units, used(&inner, DAY).await), (0, before));
    assert_balanced(&store.counts());
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_is_owed_and_refunds_nothing_of_it() {
    for pause in [0, 100, 170, 500] {
        let (store, inner, part, _) = owing().await;
        tokio::time::sleep(ms(pause)).await;
        store.adjust(&counter("hot", DAY), Change::Reset).wait().await.expect("a store answers");
        tokio::time::sleep(secs(1)).await;
        assert_eq!(store.counts().owed, 0);
        assert!(take(&inner, "hot", DAY, 30).await.0);
        let applied = settle(&store, &part, Change::Refund(4)).wait().await.expect("a store answers").remove(0);
        store.close().await;
        let counts = store.counts();
        assert_balanced(&counts);
        // A lease call that the reset overtook has charged what it asked for.
        let charged = used(&inner, DAY).await;
        assert!(applied.units == 0 && charged >= 30, "{charged} after {pause} ms: {counts:?}");
        assert!(charged <= 30 + counts.lost, "{charged} after {pause} ms: {counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_checks_are_overdrawn_together_or_not_at_all() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, 50);
    let few = Quota::fixed_window(300, secs(86_400));
    let mut tasks = tokio::task::JoinSet::new();
    for turn in 0..1_500 {
        let mode = if turn % 2 == 0 { Mode::Enforce } else { Mode::default() };
        let checks = [check("wide", DAY, 1), check("few", few, 1).mode(mode)];
        let deciding = store.decide(&checks, Ask::default()).wait();
        tasks.spawn(async move { deciding.await.expect("a store answers").decision });
        tokio::time::sleep(ms(5)).await;
    }
    let decisions = tasks.join_all().await;
    let admitted = decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
    let locally = decisions.iter().filter(|decision| decision.source() == Source::Lease).count();
    println!("{admitted} admitted, {locally} locally");
    assert!(locally > 200 && (300..=350).contains(&admitted), "{admitted} admitted, {locally} locally");
    store.close().await;
    let counts = store.counts();
    assert_balanced(&counts);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(remaining(&inner, "wide", DAY).await, 10_000 - admitted);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_ends_the_overdraft_until_a_lease_of_it_is_granted() {
    let (store, inner, _, others) = owing().await;
    let low = Quota::fixed_window(100, secs(86_400));
    let mut admitted = others + 10;
    for _ in 0..300 {
        admitted += u64::from(take(&store, "hot", low, 1).await.0);
    }
    assert!(admitted <= 100 + 50, "{admitted} of 100");
    store.close().await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(used(&inner, DAY).await, admitted);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_changes_nothing_of_what_is_owed() {
    for step in [-3_600_i64, -1, 1, 3_600] {
        let clock = ManualClock::paused();
        let wall = memory(&ManualClock::paused());
        let store = overdrawn(Far::new(wall.clone(), WAY, WAY), &clock, 50);
        let mut admitted = warm(&store, DAY).await;
        admitted += (0..200).filter(|_| here(&store, DAY, 1).is_some()).count() as u64;
        let now = clock.now();
        let by = secs(step.unsigned_abs());
        clock.set(if step < 0 { now.saturating_sub(by) } else { now + by });
        for _ in 0..50 {
            admitted += u64::from(here(&store, DAY, 1).is_some());
            tokio::time::sleep(ms(20)).await;
        }
        store.close().await;
        let counts = store.counts();
        assert_balanced(&counts);
        assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
        tokio::time::sleep(secs(1)).await;
        let used = used(&wall, DAY).await;
        assert!(used >= admitted, "{step} s: {admitted} admitted, {used} used, {counts:?}");
    }
}

#[test]
fn what_is_owed_to_a_runtime_that_ended_is_paid_from_the_next() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, 50);
    let admitted = runtime().expect("there is room for one").block_on(async {
        let before = warm(&store, DAY).await;
        before + (0..200).filter(|_| here(&store, DAY, 1).is_some()).count() as u64
    });
    assert!(store.counts().owed >= 40, "{:?}", store.counts());
    runtime().expect("there is room for one").block_on(async {
        store.close().await;
        let counts = store.counts();
        assert_balanced(&counts);
        assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
        tokio::time::sleep(secs(1)).await;
        assert_eq!(used(&inner, DAY).await, admitted);
    });
}

#[tokio::test(start_paused = true)]
async fn what_was_refunded_during_a_call_does_not_pay_for_the_next_window() {
    let (clock, quota) = (ManualClock::paused(), Quota::fixed_window(1_000, secs(1)));
    let inner = memory(&clock);
    // What is asked is decided at once, and the answer travels for longer than a lease lives.
    let store = overdrawn(Far::new(inner.clone(), ms(0), 2 * WAY), &clock, 50);
    let until_end =
        |before: u64| tokio::time::sleep(ms((1_000 + 1_000 - micros(&clock) / 1_000 % 1_000 - before) % 1_000));
    warm(&store, quota).await;
    until_end(180).await;
    let mut receipts: Vec<_> = (0..30).map(|_| here(&store, quota, 1).expect("overdrawn").receipt).collect();
    assert_eq!(store.counts().owed, 30, "{:?}", store.counts());
    until_end(10).await;
    // The first has been paid, and a call for the others is on its way, charged in this window.
    assert_eq!(store.counts().owed, 29, "{:?}", store.counts());
    for receipt in receipts.drain(1..) {
        store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait().await.expect("a store settles");
    }
    assert_eq!(store.counts().owed, 0, "{:?}", store.counts());
    tokio::time::sleep(ms(30)).await;
    let admitted = (0..29).filter(|_| here(&store, quota, 1).is_some()).count() as u64;
    assert_eq!((admitted, store.counts().owed), (29, 29), "{:?}", store.counts());
    tokio::time::sleep(ms(500)).await;
    assert_eq!(store.counts().owed, 0, "all is paid: {:?}", store.counts());
    // In the same window others take all that is left, and this process its overdraft.
    assert!(here(&store, quota, 1).is_some());
    tokio::time::sleep(2 * WAY + ms(5)).await;
    let others = remaining(&inner, "hot", quota).await;
    assert!(take(&inner, "hot", quota, others).await.0);
    let last = (0..100).filter(|_| here(&store, quota, 1).is_some()).count() as u64;
    assert!(micros(&clock) / 1_000 % 1_000 > 600, "it is the same window");
    let all = admitted + 1 + others + last;
    assert!(all <= 1_000 + 50, "{all} were admitted in one window: {admitted} + 1 + {others} by others + {last}");
}
