//! The three ways to take units.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};
use tollgate::{Key, Limiter, MemoryStore, OnFailure, Quota, Rule};
use tollgate_bandwidth::Flow;

use super::audit::{ada, failing, flow, flow_of, limiter, memory};
use crate::support::soon::soon;

const MS: Duration = Duration::from_millis(1);
const QUOTA: Quota = Quota::per_second(1_000);

#[test]
fn what_is_leased_is_taken_at_once_without_a_runtime() {
    let (limiter, counts) = limiter(MemoryStore::new(), QUOTA);
    let flow = Flow::of(&limiter, &ada()).now_or_never().expect("at once").expect("a flow");
    for _ in 0..200 {
        flow.try_acquire(1).expect("a portion is 250 units");
    }
    assert!(counts.calls() <= 4, "{} calls", counts.calls());
    assert!(flow.decision().expect("there was one").is_allowed());
    flow.check(10).now_or_never().expect("at once").expect("there are enough");
    flow.acquire(10).now_or_never().expect("at once").expect("there are enough");
    assert!(flow.check(1_001).now_or_never().expect("at once").expect_err("too many").is_denied());
    drop(flow);
    assert_eq!(counts.taken(), 220);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_does_not_wait_for_a_store_that_does() {
    let (store, flow, ..) = failing(QUOTA, OnFailure::Fallback).await;
    store.delay(20 * MS);
    flow.try_acquire(250).expect("the first portion is there");
    let error = flow.try_acquire(10).expect_err("the next one is in flight");
    assert!(error.is_pending() && !error.is_denied() && error.retry_after().is_none(), "{error}");
    sleep(30 * MS).await;
    flow.try_acquire(10).expect("it has come");
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_the_store_and_not_for_the_quota() {
    let (store, flow, ..) = failing(QUOTA, OnFailure::Fallback).await;
    store.delay(20 * MS);
    let start = Instant::now();
    let mut passed = 0;
    let error = loop {
        match flow.check(100).await {
            Ok(()) => passed += 100,
            Err(error) => break error,
        }
    };
    assert!(error.is_denied() && error.policy() == Some("bytes"), "{error}");
    assert!(error.to_string().contains("\"bytes\" is reached: 1000 per 1s"), "{error}");
    let retry_after = error.retry_after().expect("a wait helps");
    assert!(retry_after <= 300 * MS, "{retry_after:?}");
    let gained = u64::try_from(start.elapsed().as_millis()).expect("small");
    assert!((1_000 - 250..=1_000 + gained).contains(&passed), "{passed} in {gained} ms");
    let refused = Instant::now();
    flow.check(100).await.expect_err("the refusal holds");
    assert_eq!(refused.elapsed(), Duration::ZERO, "and costs no call");
    sleep(retry_after + 30 * MS).await;
    flow.check(100).await.expect("it was waited for");
}

#[tokio::test(start_paused = true)]
async fn units_beyond_the_capacity_pass_once_they_are_gained_and_are_refused_to_a_check_without_a_call() {
    let (flow, _, counts) = flow(Quota::per_second(10)).await;
    let calls = counts.calls();
    let error = flow.check(50).await.expect_err("never at once");
    assert!(error.is_denied() && error.retry_after().is_none());
    assert!(flow.try_acquire(11).expect_err("never at once").is_denied());
    assert_eq!(counts.calls(), calls, "and leases nothing");
    flow.try_acquire(2).expect("the first portion is still there");
    let start = Instant::now();
    flow.acquire(50).await.expect("memory decides");
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_millis(5_200)).contains(&elapsed), "{elapsed:?}");
    drop(flow);
    assert_eq!(counts.taken(), 52);
}

#[tokio::test(start_paused = true)]
async fn who_came_first_is_served_first() {
    let (flow, ..) = flow(Quota::per_second(10)).await;
    flow.acquire(10).await.expect("the burst");
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let (flow, sender) = (flow.clone(), sender.clone());
        tokio::spawn(async move {
            flow.acquire(if number == 0 { 8 } else { 1 }).await.expect("memory decides");
            sender.send(number).expect("it is received");
        });
        tokio::task::yield_now().await;
    }
    assert!(flow.try_acquire(1).is_err(), "others wait");
    for number in 0..5 {
        assert_eq!(soon(receiver.recv()).await, Some(number));
    }
}

#[tokio::test]
async fn one_unit_of_a_flow_is_one_of_each_rule_of_its_key() {
    let rules = [Rule::new("user", Quota::per_hour(1_000)).cost(7), Rule::new("all", Quota::per_hour(5))];
    let limiter = Limiter::new(MemoryStore::new(), rules);
    let flow = flow_of(&limiter).await;
    let other = Flow::of(&limiter, &Key::new("user", "bob")).await.expect("another flow");
    flow.acquire(4).await.expect("memory decides");
    assert_eq!(flow.check(2).await.expect_err("one is left").policy(), Some("all"));
    other.acquire(5).await.expect("its key has units of its own");
    drop(flow);
    let look = limiter.peek(&ada()).await.expect("memory decides");
    let remaining: Vec<_> = look.outcomes().iter().map(tollgate::Outcome::remaining).collect();
    assert_eq!(remaining, [996, 1]);
}

#[tokio::test]
async fn quotas_and_tiers_of_slots_and_queues_are_errors() {
    let slots = tollgate::policy::TierLookup::new(|_| async { Ok::<_, std::io::Error>(Some(Quota::concurrency(3))) });
    for rule in [
        Rule::new("bytes", Quota::concurrency(5)),
        Rule::new("bytes", Quota::leaky_bucket(5, Duration::from_secs(1))),
        Rule::new("bytes", QUOTA).tier_lookup(slots),
    ] {
        let error = Flow::of(&Limiter::new(memory(), [rule]), &ada()).await.expect_err("it cannot flow");
        assert!(error.to_string().contains("has no units that are taken by the number"), "{error}");
        assert!(error.is_invalid() && error.to_string().contains("\"bytes\""), "{error}");
    }
}
