//! Requests with several checks: leases pay all of them, or none.

use tollgate::store::{Ask, LeaseStore, Mode, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, Source};

use super::sim::{remaining, secs};
use crate::memory::opposed;
use crate::support::checks::check;
use crate::support::time::memory;

const WIDE: Quota = Quota::fixed_window(100_000, secs(86_400));

#[test]
fn threads_that_ask_in_any_order_take_from_all_keys_or_from_none() {
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    assert_eq!(opposed(&store, ["a", "b"], WIDE, 5_000), 40_000);
    let by_lease = store.counts().spent;
    drop(store);
    let left = ["a", "b"].map(|key| futures::executor::block_on(remaining(&inner, key, WIDE)));
    assert!(left == [60_000; 2] && by_lease > 60_000, "{left:?} are left, {by_lease} units were leased");
}

#[tokio::test(start_paused = true)]
async fn a_check_in_shadow_that_leases_cannot_pay_is_decided_truly_and_refuses_nobody() {
    let clock = ManualClock::paused();
    let store = LeaseStore::builder(memory(&clock)).clock(clock.clone()).build();
    let shadow = check("few", Quota::fixed_window(100, secs(86_400)), 1).mode(Mode::Shadow);
    let (mut fitted, mut by_lease) = (0, 0);
    for _ in 0..1_000 {
        let checks = [check("wide", WIDE, 1), shadow.clone()];
        let decision = store.decide(&checks, Ask::default()).wait().await.expect("it decides").decision;
        assert!(decision.is_allowed());
        fitted += u64::from(decision.outcomes()[1].is_allowed());
        by_lease += u64::from(decision.source() == Source::Lease);
    }
    assert!(fitted == 100 && (50..=100).contains(&by_lease), "{fitted} fitted, {by_lease} by leases");
}
