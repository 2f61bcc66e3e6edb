//! Where units go that are not spent: none is lost but those that must be.

use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use tokio::time::sleep;
use tollgate::store::{Change, LeaseStore, MaybeFuture, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Quota, Source};
use tollgate_test::{Recorded, RecordingStore};

use super::sim::{Far, close, ms, remaining, secs, take};
use crate::support::checks::counter;
use crate::support::doubles::settles_by;
use crate::support::time::memory;

const WINDOW: Quota = Quota::fixed_window(10_000, secs(3_600));

fn leasing() -> (LeaseStore, MemoryStore) {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    (LeaseStore::builder(inner.clone()).clock(clock.clone()).build(), inner)
}

async fn heat(store: &LeaseStore, quota: Quota, requests: u64) {
    for _ in 0..requests {
        assert!(take(store, "hot", quota, 1).await.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_closed_goes_on_without_leases() {
    let (store, inner) = leasing();
    heat(&store, WINDOW, 100).await;
    assert!(remaining(&inner, "hot", WINDOW).await < 9_900, "some are held");
    let counts = close(&store).await;
    assert_eq!((remaining(&inner, "hot", WINDOW).await, counts.lost), (9_900, 0));
    assert_eq!(take(&store, "hot", WINDOW, 1).await, (true, Source::Store));
    assert_eq!(close(&store).await, counts);
}

#[tokio::test(start_paused = true)]
async fn closing_that_is_dropped_while_leases_are_on_their_way_gives_them_back_as_they_come() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let far = Far::new(inner.clone(), ms(10), ms(10));
    let store = LeaseStore::builder(far).clock(clock.clone()).build();
    for _ in 0..12 {
        let store = store.clone();
        tokio::spawn(async move { take(&store, "hot", WINDOW, 1).await });
    }
    sleep(ms(5)).await;
    assert!(store.close().now_or_never().is_none(), "it waits for the inner store");
    sleep(ms(10)).await;
    assert!(remaining(&inner, "hot", WINDOW).await < 9_988, "a lease is on its way");
    sleep(ms(25)).await;
    assert_eq!(remaining(&inner, "hot", WINDOW).await, 9_988);
    let closed = close(&store).await;
    assert_eq!((closed.returned, closed.lost), (closed.leased, 0), "{closed:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_hands_over_no_more_at_once_than_an_inner_store_takes() {
    let (clock, settling) = (ManualClock::paused(), AtomicU32::new(0));
    let inner = memory(&clock);
    let busy = settles_by(RecordingStore::new(inner.clone()), move |recording, receipt, changes| {
        // What was sent has arrived before whatever is asked after it; what is too much is lost.
        if recording.take().iter().any(|call| matches!(call, Recorded::Decide(_))) {
            settling.store(0, Ordering::Relaxed);
        }
        let has_room = settling.fetch_add(1, Ordering::Relaxed) < 2_000;
        if has_room { recording.settle(receipt, changes) } else { MaybeFuture::Ready(Ok(Vec::new())) }
    });
    let store = LeaseStore::builder(busy).clock(clock.clone()).build();
    for key in 0..3_000 {
        for _ in 0..10 {
            assert!(take(&store, &key.to_string(), WINDOW, 1).await.0);
        }
    }
    let returned = close(&store).await.returned;
    assert!(returned > 3_000, "{returned} units were held");
    for key in 0..3_000 {
        assert_eq!(remaining(&inner, &key.to_string(), WINDOW).await, 9_990, "key {key}");
    }
}

#[test]
fn a_look_outside_of_a_runtime_finds_what_an_idle_key_gives_back() {
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    futures::executor::block_on(async {
        heat(&store, WINDOW, 100).await;
        clock.advance(secs(10));
        assert!(remaining(&inner, "hot", WINDOW).await < 9_900, "nobody has asked anything");
        assert_eq!(remaining(&store, "hot", WINDOW).await, 9_900);
        assert_eq!((remaining(&inner, "hot", WINDOW).await, store.counts().held()), (9_900, 0));
    });
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spent_after_a_tenth_of_the_window_or_a_second() {
    for (quota, half) in [(WINDOW, 500), (Quota::token_bucket(10_000, secs(2)), 100)] {
        let (store, _) = leasing();
        while store.counts().held() <= 40 {
            heat(&store, quota, 1).await;
        }
        let warm = store.counts();
        for _ in 0..2 {
            sleep(ms(half - 1)).await;
            take(&store, "hot", quota, 1).await;
        }
        let before = store.counts();
        assert_eq!((before.spent, before.returned + before.lost), (warm.spent + 2, 0), "{quota}");
        sleep(ms(2)).await;
        take(&store, "hot", quota, 1).await;
        let after = store.counts();
        assert_eq!(after.returned + after.lost, warm.held() - 2, "{quota}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spent_after_the_window_it_was_charged_to() {
    // Units of the last window count in the next one only if it slides.
    for (of, counts_on) in [(Quota::fixed_window as fn(_, _) -> _, false), (Quota::sliding_window, true)] {
        let ((store, _), quota) = (leasing(), of(10_000, secs(100)));
        sleep(ms(99_700)).await;
        heat(&store, quota, 100).await;
        let before = store.counts();
        assert!(before.held() > 0 && before.returned + before.lost == 0);
        sleep(ms(300)).await;
        take(&store, "hot", quota, 1).await;
        let after = store.counts();
        let expected = if counts_on { (before.held(), 0) } else { (0, before.held()) };
        assert_eq!((after.returned, after.lost), expected, "{quota}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_while_a_reset_is_waited_for_is_forgotten_when_nobody_waits_any_more() {
    let clock = ManualClock::paused();
    let failing = FailingStore::new(memory(&clock));
    let store = LeaseStore::builder(failing.clone()).clock(clock.clone()).build();
    heat(&store, WINDOW, 100).await;
    failing.hang();
    let mut reset = Box::pin(store.adjust(&counter("hot", WINDOW), Change::Reset).wait());
    assert!((&mut reset).now_or_never().is_none());
    assert_eq!(store.counts().held(), 0);
    failing.work();
    heat(&store, WINDOW, 100).await;
    assert!(store.counts().held() > 0, "it is hot again");
    drop(reset);
    assert_eq!(store.counts().held(), 0, "the reset may come through after it");
}

#[tokio::test(start_paused = true)]
async fn a_window_of_as_many_ticks_is_not_paid_by_the_leases_of_another() {
    let (store, inner) = leasing();
    heat(&store, WINDOW, 100).await;
    assert!(store.counts().held() > 0);
    // Its ticks are microseconds, and theirs milliseconds.
    let short = Quota::fixed_window(10_000, ms(3_600));
    assert!(take(&store, "hot", short, 1).await.0);
    assert!(remaining(&inner, "hot", short).await < 10_000, "its unit is its own, or of its own lease");
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_gives_the_lease_back_and_a_raised_one_leaves_it() {
    let (store, inner) = leasing();
    heat(&store, WINDOW, 100).await;
    let held = store.counts().held();
    let raised = Quota::fixed_window(20_000, secs(3_600));
    assert_eq!(take(&store, "hot", raised, 1).await.1, Source::Lease);
    assert_eq!(store.counts().held(), held - 1);
    let lowered = Quota::fixed_window(150, secs(3_600));
    assert_eq!(take(&store, "hot", lowered, 1).await.1, Source::Store);
    assert_eq!((store.counts().held(), remaining(&inner, "hot", lowered).await), (0, 150 - 102));
}
