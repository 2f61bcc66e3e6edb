//! Requests with several checks: leases pay all of them, or none.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::{Ask, Check, LeaseStore, MaybeFuture, Mode, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, Source};

use super::sim::{Far, remaining, secs};
use crate::support::checks::check;
use crate::support::time::memory;

const WIDE: Quota = Quota::fixed_window(100_000, secs(86_400));

#[test]
fn threads_that_ask_in_any_order_take_from_both_keys_or_from_none() {
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    let (admitted, by_lease) = (AtomicU64::new(0), AtomicU64::new(0));
    let ready = |checks: &[Check]| {
        let MaybeFuture::Ready(decided) = store.decide(checks, Ask::default()) else {
            panic!("memory answers at once")
        };
        decided.unwrap().decision
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ready, admitted, by_lease) = (&ready, &admitted, &by_lease);
            scope.spawn(move || {
                let mut checks = [check("a", WIDE, 1), check("b", WIDE, 2)];
                if thread % 2 == 0 {
                    checks.reverse();
                }
                for _ in 0..10_000 {
                    let decision = ready(&checks);
                    admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                    by_lease.fetch_add(u64::from(decision.source() == Source::Lease), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 40_000);
    assert!(by_lease.into_inner() > 30_000);
    let counts = store.counts();
    drop(store);
    let left = |key| futures::executor::block_on(remaining(&inner, key, WIDE));
    assert_eq!((left("a"), left("b")), (100_000 - 40_000, 100_000 - 80_000), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_one_lease_cannot_pay_takes_nothing_from_the_others() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    let few = Quota::fixed_window(40, secs(86_400));
    let mut admitted = 0;
    for _ in 0..1_000 {
        let decided =
            store.decide(&[check("wide", WIDE, 1), check("few", few, 1)], Ask::default()).wait().await.unwrap();
        admitted += u64::from(decided.decision.is_allowed());
    }
    assert_eq!(admitted, 40);
    store.close().await;
    assert_eq!(remaining(&inner, "wide", WIDE).await, 100_000 - 40);
}

#[tokio::test(start_paused = true)]
async fn a_check_in_shadow_that_leases_cannot_pay_is_decided_truly_and_refuses_nobody() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    let shadow = check("few", Quota::fixed_window(100, secs(86_400)), 1).mode(Mode::Shadow);
    let (mut fitted, mut by_lease) = (0, 0);
    for _ in 0..1_000 {
        let decided = store.decide(&[check("wide", WIDE, 1), shadow.clone()], Ask::default()).wait().await.unwrap();
        assert!(decided.decision.is_allowed());
        fitted += u64::from(decided.decision.outcomes()[1].is_allowed());
        by_lease += u64::from(decided.decision.source() == Source::Lease);
    }
    assert_eq!(fitted, 100);
    assert!((50..=100).contains(&by_lease), "{by_lease}");
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_beside_cold_ones_is_not_leased_for_nothing() {
    let clock = ManualClock::paused();
    let far = Far::near(memory(&clock));
    let store = LeaseStore::builder(far.clone()).clock(clock.clone()).build();
    for client in 0..2_000 {
        let checks = [check("route", WIDE, 1), check(&client.to_string(), WIDE, 1)];
        drop(store.decide(&checks, Ask::default()).wait().await.unwrap());
    }
    assert_eq!(far.calls(), 2_000);
}
