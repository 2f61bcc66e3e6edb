//! Leases that are overdrawn while the next one is on its way.

use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::store::{
    Ask, Change, LeaseStore, MaybeFuture, Receipt, ReceiptItem, Settlement, Settling, Store, StoreDecision, StoreId,
};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Quota, Source};
use tollgate_test::{Recorded, RecordingStore};

use super::sim::{Far, close, micros, ms, remaining, secs, take};
use crate::support::checks::{check, counter};
use crate::support::doubles::{away, settles_by};
use crate::support::time::{at, memory};

const DAY: Quota = Quota::fixed_window(10_000, secs(86_400));
/// Each way of a far link.
const WAY: Duration = ms(80);

fn overdrawn(inner: impl Store, clock: &ManualClock, overdraft: u64) -> LeaseStore {
    LeaseStore::builder(inner).overdraft(overdraft).clock(clock.clone()).build()
}

/// Asks without waiting; `None` if the inner store has to decide, which is not asked then.
fn here(store: &LeaseStore, quota: Quota) -> Option<StoreDecision> {
    let answer = store.decide(&[check("hot", quota, 1)], Ask::default());
    let decided = answer.wait().now_or_never()?.expect("a store answers");
    (decided.decision.source() == Source::Lease).then_some(decided)
}

/// Asks so many times; returns how many were admitted without the inner store.
fn burst(store: &LeaseStore, quota: Quota, requests: u64) -> u64 {
    (0..requests).filter(|_| here(store, quota).is_some()).count() as u64
}

/// Takes units by single requests until leases of the key are in use, and the link is idle; returns how many.
async fn warm(store: &LeaseStore, quota: Quota) -> u64 {
    let mut tasks = JoinSet::new();
    while here(store, quota).is_none() {
        let one = store.clone();
        tasks.spawn(async move { assert!(take(&one, "hot", quota, 1).await.0) });
        sleep(ms(10)).await;
        assert!(tasks.len() < 100, "it is never leased: {:?}", store.counts());
    }
    // Not so long that the key is idle.
    sleep(ms(300)).await;
    tasks.join_all().await.len() as u64 + 1
}

/// Units that the inner store has counted, beyond the limit too.
async fn used(inner: &MemoryStore, quota: Quota) -> u64 {
    let ample = Quota::try_new(quota.algorithm(), 1_000_000, quota.window()).unwrap_or(quota);
    ample.limit() - remaining(inner, "hot", ample).await
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
        let (start, mut tasks, mut late, mut locally) = (Instant::now(), JoinSet::new(), 0, 0);
        while start.elapsed() < secs(10) {
            let is_late = start.elapsed() > secs(2);
            late += u32::from(is_late);
            match store.decide(&[check("hot", quota, 1)], Ask::default()) {
                MaybeFuture::Ready(_) => locally += u32::from(is_late),
                MaybeFuture::Pending(pending) => {
                    tasks.spawn(async move { assert!(pending.await.expect("it decides").decision.is_allowed()) });
                }
            }
            sleep(every).await;
        }
        tasks.join_all().await;
        assert!(locally * 100 >= late * 97, "{quota}: {locally} of {late}");
        close(&store).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_admitted_is_charged_and_no_more_when_the_store_is_closed_or_dropped() {
    let (window, log) = (Quota::sliding_window(10_000, secs(86_400)), Quota::sliding_log(10_000, secs(86_400)));
    // A key is idle after half a second. Seconds are those by which the store's clock steps.
    let (pauses, steps) = ([0, 40, 100, 200, 520, 1_100].map(|pause| (pause, 0)), [-3_600, -1, 1, 3_600]);
    for (pause, step) in pauses.into_iter().chain(steps.map(|step| (20, step))) {
        for (quota, overdraft, closes) in
            [(DAY, 50, true), (DAY, 50, false), (DAY, 0, true), (window, 0, false), (log, 0, true), (log, 50, false)]
        {
            let clock = ManualClock::paused();
            let inner = memory(&ManualClock::paused());
            let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, overdraft);
            let admitted = warm(&store, quota).await + burst(&store, quota, 200);
            assert!(overdraft == 0 || store.counts().owed >= 40, "{:?}", store.counts());
            sleep(ms(pause)).await;
            if step != 0 {
                clock.set((clock.now() + secs(3_600)).saturating_sub(secs(3_600_u64.saturating_add_signed(-step))));
            }
            let what = format!("{quota}, {overdraft}, after {pause} ms and a step of {step} s, closed: {closes}");
            if closes {
                close(&store).await;
                assert!(step != 0 || used(&inner, quota).await == admitted, "{what}: {:?}", store.counts());
            }
            drop(store);
            sleep(secs(2)).await;
            let used = used(&inner, quota).await;
            assert!(used == admitted || step != 0 && used > admitted, "{what}: {admitted} admitted, {used} used");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_inner_store_fails_or_hangs_no_more_is_owed_than_the_overdraft() {
    for hangs in [false, true] {
        let clock = ManualClock::paused();
        let failing = FailingStore::new(memory(&clock));
        failing.delay(ms(1));
        let store = overdrawn(failing.clone(), &clock, 50);
        warm(&store, DAY).await;
        if hangs {
            failing.hang();
        } else {
            failing.fail_with(away);
        }
        failing.delay(ms(1));
        let held = store.counts().held();
        assert_eq!((burst(&store, DAY, 500), store.counts().owed), (held + 50, 50), "{:?}", store.counts());
        sleep(secs(10)).await;
        let deciding = timeout(secs(1), store.decide(&[check("hot", DAY, 1)], Ask::default()).wait()).await;
        if hangs {
            assert!(deciding.is_err());
            continue;
        }
        assert!(deciding.is_ok_and(|decided| decided.is_err_and(|error| error.is_store())));
        failing.work();
        sleep(ms(200)).await;
        assert!(take(&store, "hot", DAY, 1).await.0);
        close(&store).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_whose_reply_is_lost_is_not_sent_again() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let deaf = settles_by(Far::new(inner.clone(), WAY, WAY), |far, receipt, changes| {
        drop(far.settle(receipt, changes));
        MaybeFuture::Ready(Err(away()))
    });
    let recording = RecordingStore::new(deaf);
    let store = overdrawn(recording.clone(), &clock, 50);
    warm(&store, DAY).await;
    // So that the next lease is refused.
    inner.adjust(&counter("hot", DAY), Change::Charge(10_000)).wait().await.expect("memory answers");
    assert!(burst(&store, DAY, 500) >= 50);
    sleep(secs(2)).await;
    assert_eq!(store.counts().owed, 0, "it may have been made");
    drop(store);
    sleep(secs(2)).await;
    let is_charge = |change: &Settlement| matches!(change.change, Change::Charge(_));
    let charges = recording
        .take()
        .into_iter()
        .filter(|call| matches!(call, Recorded::Settle(_, changes) if changes.iter().any(is_charge)));
    assert_eq!(charges.count(), 1);
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
        others += burst(&store, DAY, 1);
    }
    let deciding = store.decide(&[check("hot", DAY, 10)], Ask::default()).wait();
    let decided = deciding.now_or_never().expect("it may be owed").expect("it is");
    let part = (decided.receipt.store(), decided.receipt.items()[0].clone());
    (store, inner, part, others)
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_what_was_paid_too_long_ago_says_that_nothing_was_given_back() {
    let (store, inner, part, _) = owing().await;
    for _ in 0..40 {
        sleep(ms(500)).await;
        while here(&store, DAY).is_some() {}
    }
    sleep(secs(1)).await;
    let before = used(&inner, DAY).await;
    let applied = settle(&store, &part, Change::Refund(4)).wait().await.expect("a store answers").remove(0);
    assert_eq!((applied.units, used(&inner, DAY).await), (0, before));
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_is_owed_and_refunds_nothing_of_it() {
    for pause in [0, 100, 170, 500] {
        let (store, inner, part, _) = owing().await;
        sleep(ms(pause)).await;
        store.adjust(&counter("hot", DAY), Change::Reset).wait().await.expect("a store answers");
        sleep(secs(1)).await;
        assert_eq!(store.counts().owed, 0);
        assert!(take(&inner, "hot", DAY, 30).await.0);
        let applied = settle(&store, &part, Change::Refund(4)).wait().await.expect("a store answers").remove(0);
        let lost = close(&store).await.lost;
        // A lease call that the reset overtook has charged what it asked for.
        let charged = used(&inner, DAY).await;
        assert!(applied.units == 0 && (30..=30 + lost).contains(&charged), "{charged}, {lost} lost, after {pause} ms");
    }
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
    close(&store).await;
    sleep(secs(1)).await;
    assert_eq!(used(&inner, DAY).await, admitted);
}

#[test]
fn what_a_runtime_left_at_its_end_is_settled_from_the_next() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = overdrawn(Far::new(inner.clone(), WAY, WAY), &clock, 50);
    let admitted =
        runtime().expect("there is room for one").block_on(async { warm(&store, DAY).await + burst(&store, DAY, 200) });
    assert!(store.counts().owed >= 40 && store.counts().lost > 0, "a call was in flight: {:?}", store.counts());
    runtime().expect("there is room for one").block_on(async {
        // With a lease of any key the others are looked after again.
        for _ in 0..200 {
            assert!(take(&store, "second", DAY, 1).await.0);
        }
        clock.set(at(2_000_000));
        sleep(secs(1)).await;
        assert_eq!((store.counts().held(), store.counts().owed), (0, 0), "{:?}", store.counts());
        assert_eq!(used(&inner, DAY).await, admitted);
        timeout(secs(10), store.close()).await.expect("no call is waited for in vain");
    });
}

#[tokio::test(start_paused = true)]
async fn what_was_refunded_during_a_call_does_not_pay_for_the_next_window() {
    let (clock, quota) = (ManualClock::paused(), Quota::fixed_window(1_000, secs(1)));
    let inner = memory(&clock);
    // What is asked is decided at once, and the answer travels for longer than a lease lives.
    let store = overdrawn(Far::new(inner.clone(), ms(0), 2 * WAY), &clock, 50);
    let until_end = |before: u64| sleep(ms((1_000 + 1_000 - micros(&clock) / 1_000 % 1_000 - before) % 1_000));
    warm(&store, quota).await;
    until_end(180).await;
    let mut receipts: Vec<_> = (0..30).map(|_| here(&store, quota).expect("overdrawn").receipt).collect();
    assert_eq!(store.counts().owed, 30, "{:?}", store.counts());
    until_end(10).await;
    // The first has been paid, and a call for the others is on its way, charged in this window.
    assert_eq!(store.counts().owed, 29, "{:?}", store.counts());
    for receipt in receipts.drain(1..) {
        store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait().await.expect("a store settles");
    }
    assert_eq!(store.counts().owed, 0, "{:?}", store.counts());
    sleep(ms(30)).await;
    assert_eq!((burst(&store, quota, 29), store.counts().owed), (29, 29), "{:?}", store.counts());
    sleep(ms(500)).await;
    assert_eq!(store.counts().owed, 0, "all is paid: {:?}", store.counts());
    // In the same window others take all that is left, and this process its overdraft.
    assert!(here(&store, quota).is_some());
    sleep(2 * WAY + ms(5)).await;
    let others = remaining(&inner, "hot", quota).await;
    assert!(take(&inner, "hot", quota, others).await.0);
    let last = burst(&store, quota, 100);
    assert!(micros(&clock) / 1_000 % 1_000 > 600, "it is the same window");
    assert!(30 + others + last <= 1_000 + 50, "in one window 30, {others} by others and {last} were admitted");
}
