//! Who gets a lease, how large, and what that saves.

use tokio::time::sleep;
use tollgate::store::{Ask, LeaseStore, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, Source};

use super::sim::{Far, ms, secs, take};
use crate::support::checks::check;
use crate::support::slow::many;
use crate::support::time::memory;

const MANY: Quota = Quota::fixed_window(1_000_000, secs(100));

fn leasing(share: f64) -> (LeaseStore, Far) {
    let clock = ManualClock::paused();
    let far = Far::new(memory(&clock), ms(0), ms(0));
    (LeaseStore::builder(far.clone()).max_share(share).clock(clock.clone()).build(), far)
}

#[tokio::test(start_paused = true)]
async fn cold_keys_cost_one_call_each_time_as_without_leases() {
    let (store, far) = leasing(0.1);
    for _ in 0..100 {
        assert_eq!(take(&store, "cold", MANY, 1).await, (true, Source::Store));
        sleep(secs(1)).await;
    }
    assert_eq!(far.calls(), 100, "asked once a second");
    for client in 0..2_000 {
        let checks = [check("route", MANY, 1), check(&client.to_string(), MANY, 1)];
        drop(store.decide(&checks, Ask::default()).wait().await.expect("it decides"));
    }
    assert_eq!(far.calls(), 2_100, "beside a hot key");
    assert_eq!(store.counts().leased, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_hot_keys_cost_less_than_one_call_in_a_hundred_requests() {
    let clock = ManualClock::paused();
    let far = Far::new(memory(&clock), ms(1), ms(1));
    let store = LeaseStore::builder(far.clone()).clock(clock.clone()).build();
    let mut random = fastrand::Rng::with_seed(3);
    let keys: Vec<_> = (0..100).map(|key| check(&key.to_string(), MANY, 1)).collect();
    let (mut asked, mut before) = (0, 0);
    // 60,000 requests a second, drawn from 100 keys; the first two seconds warm up.
    for step in 0..many([4_000, 10_000]) {
        if step == 2_000 {
            (asked, before) = (0, far.calls());
        }
        for _ in 0..60 {
            asked += 1;
            if let MaybeFuture::Pending(pending) = store.decide(&[keys[random.usize(..100)].clone()], Ask::default()) {
                tokio::spawn(pending);
            }
        }
        sleep(ms(1)).await;
    }
    let calls = far.calls() - before;
    println!("{calls} calls for {asked} requests, {:?}", store.counts());
    assert!(calls * 100 < asked, "{calls} calls for {asked} requests");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_no_more_than_the_share_of_the_limit_or_of_a_smaller_burst() {
    for (quota, share, most) in [
        (Quota::fixed_window(1_000, secs(100)), 0.1, 100),
        (Quota::fixed_window(1_000, secs(100)), 0.5, 500),
        (Quota::token_bucket(1_000, secs(100)).burst(200), 0.1, 20),
        (Quota::token_bucket(1_000, secs(100)).burst(5_000), 0.1, 100),
    ] {
        let (store, _) = leasing(share);
        let mut held = 0;
        for _ in 0..900 {
            take(&store, "hot", quota, 1).await;
            held = held.max(store.counts().held());
        }
        assert!((most / 2..=most).contains(&held), "{held} of {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn reserves_queues_slots_and_looks_are_never_leased() {
    let (store, far) = leasing(0.1);
    let reserve = check("reserve", MANY, 1).floor(1);
    let queue = check("queue", Quota::leaky_bucket(1_000, secs(1)).queue(500), 1);
    let slots = check("slots", Quota::concurrency(1_000), 1);
    let look = check("look", MANY, 0);
    for check in [reserve, queue, slots, look] {
        for _ in 0..100 {
            drop(store.decide(std::slice::from_ref(&check), Ask::default()).wait().await.expect("it decides"));
        }
    }
    assert_eq!(far.calls(), 400);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_key_costs_hardly_more_calls_than_without_leases() {
    const FEW: Quota = Quota::fixed_window(100, secs(60));
    let (store, far) = leasing(0.1);
    for _ in 0..100 {
        take(&store, "hot", FEW, 1).await;
    }
    sleep(secs(2)).await;
    while take(&store, "hot", FEW, 1).await.0 {}
    let before = far.calls();
    for _ in 0..10_000 {
        assert!(!take(&store, "hot", FEW, 1).await.0);
        sleep(ms(1)).await;
    }
    let calls = far.calls() - before;
    assert!((10_000..10_050).contains(&calls), "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn keys_that_clients_make_up_do_not_take_the_lease_of_a_hot_one() {
    let clock = ManualClock::paused();
    let store = LeaseStore::builder(memory(&clock)).capacity(256).clock(clock.clone()).build();
    let mut by_lease = 0;
    for step in 0..20_000_u32 {
        take(&store, &step.to_string(), MANY, 1).await;
        if step % 10 == 0 {
            by_lease += u32::from(take(&store, "hot", MANY, 1).await.1 == Source::Lease);
            sleep(ms(2)).await;
        }
    }
    assert!(by_lease > 1_700, "{by_lease} of 2,000");
}

#[tokio::test(start_paused = true)]
async fn remaining_and_reset_of_a_local_decision_are_as_of_the_lease_and_never_above_the_limit() {
    const QUOTA: Quota = Quota::fixed_window(1_000, secs(100));
    let (store, _) = leasing(0.1);
    let mut local = 0;
    for taken in 1..=500_u64 {
        let decided = store.decide(&[check("hot", QUOTA, 1)], Ask::default()).wait().await.expect("it decides");
        let outcome = &decided.decision.outcomes()[0];
        // The inner store decides a request after the lease that it caused, which so does not know of it.
        assert!((900 - taken..=1_001 - taken).contains(&outcome.remaining()), "{} of {taken}", outcome.remaining());
        let reset = outcome.reset_after();
        assert!(reset <= secs(100) && reset > secs(99), "{reset:?}");
        local += u32::from(decided.decision.source() == Source::Lease);
        sleep(ms(1)).await;
    }
    assert!(local > 400, "{local}");
}
