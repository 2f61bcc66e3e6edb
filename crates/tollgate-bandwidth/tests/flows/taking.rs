//! The three ways to take units.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_bandwidth::Flow;

use super::audit::{ada, limiter};
use crate::support::soon::soon;

const MS: Duration = Duration::from_millis(1);

/// A store in memory by tokio's paused time.
pub(super) fn memory() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::paused()).build()
}

#[tokio::test(start_paused = true)]
async fn what_is_leased_is_taken_at_once() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    for _ in 0..200 {
        flow.try_acquire(1).expect("a portion is 250 units");
    }
    assert!(counts.calls() <= 4, "{} calls", counts.calls());
    assert!(flow.decision().expect("there was one").is_allowed());
}

#[tokio::test(start_paused = true)]
async fn try_take_does_not_wait_for_a_store_that_does() {
    let store = FailingStore::new(memory());
    store.delay(20 * MS);
    let (limiter, _) = limiter(store, Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    flow.try_acquire(250).expect("the first portion is there");
    let error = flow.try_acquire(10).expect_err("the next one is in flight");
    assert!(error.is_pending() && !error.is_denied() && error.retry_after().is_none(), "{error}");
    sleep(30 * MS).await;
    flow.try_acquire(10).expect("it has come");
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_the_store_and_not_for_the_quota() {
    let store = FailingStore::new(memory());
    store.delay(20 * MS);
    let (limiter, _) = limiter(store, Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    let start = Instant::now();
    let mut passed = 0;
    let error = loop {
        match flow.check(100).await {
            Ok(()) => passed += 100,
            Err(error) => break error,
        }
    };
    assert!(error.is_denied() && error.policy() == Some("bytes"), "{error}");
    assert_eq!(error.to_string(), "the limit of policy \"bytes\" is reached: 1000 per 1s (token_bucket)");
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
async fn a_check_that_is_polled_long_after_its_refusal_calls_the_store_again() {
    let store = FailingStore::new(memory());
    store.delay(20 * MS);
    let (limiter, _) = limiter(store, Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    sleep(2_000 * MS).await;
    // Nothing is leased any more.
    let _ = limiter.check_n(&ada(), 700).await.expect("memory decides");
    let mut late = Box::pin(flow.check(600));
    assert!(late.as_mut().now_or_never().is_none(), "the call is in flight");
    sleep(100 * MS).await;
    assert!(flow.decision().is_some_and(|decision| !decision.is_allowed()));
    sleep(400 * MS).await;
    soon(late).await.expect("800 units were gained");
}

#[tokio::test(start_paused = true)]
async fn take_paces_to_the_quota() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    let start = Instant::now();
    for _ in 0..1_100 {
        flow.acquire(10).await.expect("memory decides");
    }
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_millis(10_600)).contains(&elapsed), "{elapsed:?}");
    assert!(counts.calls() <= 60, "{} calls", counts.calls());
}

#[tokio::test(start_paused = true)]
async fn units_beyond_the_capacity_pass_once_they_are_gained_and_are_refused_to_a_check() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(10));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    let error = flow.check(50).await.expect_err("never at once");
    assert!(error.is_denied() && error.retry_after().is_none());
    assert!(flow.try_acquire(11).expect_err("never at once").is_denied());
    let start = Instant::now();
    flow.acquire(50).await.expect("memory decides");
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(5)).contains(&elapsed), "{elapsed:?}");
    drop(flow);
    assert_eq!(counts.taken(), 50);
}

#[tokio::test(start_paused = true)]
async fn who_came_first_is_served_first() {
    let (limiter, _) = limiter(memory(), Quota::per_second(10));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
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

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_takes_nothing_and_keeps_nobody_waiting() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(10));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    flow.acquire(10).await.expect("the burst");
    let first = timeout(100 * MS, flow.acquire(100));
    let second = flow.clone();
    let second = tokio::spawn(async move { second.acquire(1).await });
    first.await.expect_err("it takes 10 s");
    soon(second).await.expect("no panic").expect("memory decides");
    drop(flow);
    assert_eq!(counts.taken(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_claims_keeps_no_other_waiting() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(4));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    flow.acquire(4).await.expect("the burst");
    let mut idle = Box::pin(flow.acquire(1));
    assert!(idle.as_mut().now_or_never().is_none());
    sleep(Duration::from_secs(5)).await;
    // It was granted long ago, and never polled since.
    for _ in 0..3 {
        flow.acquire(1).await.expect("memory decides");
    }
    idle.await.expect("it joins the line again");
    drop(flow);
    assert_eq!(counts.taken(), 8);
}

#[tokio::test]
async fn one_unit_of_a_flow_is_one_of_each_rule() {
    let rules = [Rule::new("user", Quota::per_hour(1_000)).cost(7), Rule::new("all", Quota::per_hour(5))];
    let limiter = Limiter::new(MemoryStore::new(), rules);
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    flow.acquire(4).await.expect("memory decides");
    let error = flow.check(2).await.expect_err("one is left");
    assert_eq!(error.policy(), Some("all"));
    drop(flow);
    let look = limiter.peek(&ada()).await.expect("memory decides");
    let remaining: Vec<_> = look.outcomes().iter().map(tollgate::Outcome::remaining).collect();
    assert_eq!(remaining, [996, 1]);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_refuses_nothing() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_hour(5)).shadow()]);
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    for _ in 0..100 {
        flow.check(10).await.expect("nothing refuses");
    }
}

#[tokio::test]
async fn quotas_of_slots_and_queues_are_errors() {
    for quota in [Quota::concurrency(5), Quota::leaky_bucket(5, Duration::from_secs(1))] {
        let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", quota)]);
        let error = Flow::of(&limiter, &ada()).await.expect_err("it cannot flow");
        assert!(error.is_invalid() && error.to_string().contains("\"bytes\""), "{error}");
    }
}

#[tokio::test]
async fn keys_have_flows_of_their_own() {
    let (limiter, _) = limiter(MemoryStore::new(), Quota::per_hour(4));
    let (one, other) =
        (Flow::of(&limiter, &ada()).await.expect("one"), Flow::of(&limiter, &Key::new("user", "bob")).await);
    one.acquire(4).await.expect("memory decides");
    other.expect("another").acquire(4).await.expect("memory decides");
    assert!(one.check(1).await.is_err());
}

#[test]
fn a_store_in_memory_needs_no_runtime_until_somebody_has_to_wait() {
    let (limiter, counts) = limiter(MemoryStore::new(), Quota::per_hour(1_000));
    let flow = Flow::of(&limiter, &ada()).now_or_never().expect("at once").expect("a flow");
    for _ in 0..100 {
        flow.try_acquire(1).expect("there are enough");
    }
    flow.check(10).now_or_never().expect("at once").expect("there are enough");
    flow.acquire(10).now_or_never().expect("at once").expect("there are enough");
    assert!(flow.check(1_000).now_or_never().expect("at once").expect_err("too many").is_denied());
    drop(flow);
    assert_eq!(counts.taken(), 120);
}

#[tokio::test(start_paused = true)]
async fn more_than_can_ever_be_taken_costs_no_call() {
    let (limiter, counts) = limiter(memory(), Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    let calls = counts.calls();
    for _ in 0..10 {
        let error = flow.try_acquire(1_001).expect_err("a bucket holds 1,000");
        assert!(error.is_denied() && error.retry_after().is_none(), "{error}");
    }
    assert_eq!(counts.calls(), calls, "and leases nothing");
    flow.try_acquire(250).expect("the first portion is still there");
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_cannot_be_leased_is_an_error() {
    let slots = tollgate::policy::TierLookup::new(|_| async { Ok::<_, std::io::Error>(Some(Quota::concurrency(3))) });
    let rule = Rule::new("bytes", Quota::per_second(1_000)).tier_lookup(slots);
    let error = Flow::of(&Limiter::new(memory(), [rule]), &ada()).await.expect_err("slots are no portions");
    assert!(error.to_string().contains("a concurrency has no units that are taken by the number"), "{error}");
}
