//! Waiting until it is admitted, on tokio's paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Error, Key, Limiter, Quota, Rule};
use tollgate_test::StoreFn;

use crate::support::time::memory;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// The timer's grain.
const GRAIN: Duration = Duration::from_millis(2);

/// A limiter on the runtime's time.
fn limiter(quota: Quota) -> Limiter {
    Limiter::new(memory(&ManualClock::paused()), [Rule::new("mail", quota)])
}

fn ada() -> Key {
    Key::new("user", "ada")
}

/// Waits until it is ready; what was decided, and how long it took.
async fn ready(limiter: &Limiter, patience: Duration) -> (Decision, Duration) {
    let start = Instant::now();
    let decision = timeout(FOREVER * 2, limiter.until_ready(&ada(), patience)).await.expect("it ends");
    let denied = |error: Error| error.decision().cloned().filter(|_| error.is_denied()).expect("the store is there");
    (decision.map_or_else(denied, |(decision, _)| decision), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn it_waits_as_long_as_it_is_told_and_at_most_a_tenth_more() {
    let limiter = limiter(Quota::token_bucket(1, SECOND * 10));
    assert!(limiter.check(&ada()).await.unwrap().is_allowed());
    let mut waits = Vec::new();
    for _ in 0..50 {
        let told = limiter.check(&ada()).await.unwrap().retry_after().expect("a wait");
        let (decision, waited) = ready(&limiter, FOREVER).await;
        assert!(decision.is_allowed());
        assert!(waited >= told && waited <= told + told / 10 + GRAIN, "told {told:?}, waited {waited:?}");
        waits.push(waited.saturating_sub(told));
    }
    waits.sort_unstable();
    assert!(waits[49].saturating_sub(waits[0]) > Duration::from_millis(100), "those who wait are spread: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_its_timeout_or_without_an_end_is_not_begun() {
    let limiter = limiter(Quota::token_bucket(1, SECOND * 10));
    assert!(limiter.check(&ada()).await.unwrap().is_allowed());
    for (patience, expected) in
        [(Duration::ZERO, Duration::ZERO), (Duration::from_millis(9_999), Duration::ZERO), (SECOND * 10, SECOND * 10)]
    {
        let (decision, waited) = ready(&limiter, patience).await;
        assert_eq!(decision.is_allowed(), !waited.is_zero());
        assert!(waited >= expected && waited <= expected + GRAIN, "{patience:?}: {waited:?}");
    }
    assert!(timeout(SECOND * 5, limiter.until_ready(&ada(), FOREVER)).await.is_err());
    sleep(SECOND * 5).await;
    assert!(limiter.check(&ada()).await.unwrap().is_allowed(), "one who left has taken nothing");
}

#[cfg(feature = "lookup")]
#[tokio::test(start_paused = true)]
async fn a_cost_that_is_never_admitted_is_not_waited_for() {
    use tollgate::{key::Lookup, policy::TierLookup};

    let tier = TierLookup::new(|_: Lookup| async { Ok::<_, std::convert::Infallible>(Some(Quota::per_hour(3))) });
    let rule = Rule::new("mail", Quota::per_hour(5)).cost(4).tier_lookup(tier);
    let limiter = Limiter::new(memory(&ManualClock::paused()), [rule]);
    let (decision, waited) = ready(&limiter, FOREVER).await;
    assert_eq!((decision.is_allowed(), decision.retry_after(), waited), (false, None, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_are_all_served_at_the_rate_of_the_quota_or_told_that_they_are_not() {
    let (limiter, start, ada) = (limiter(Quota::token_bucket(10, SECOND)), Instant::now(), ada());
    let waited = join_all((0..60).map(|_| limiter.until_ready(&ada, SECOND * 3))).await;
    let served = waited.iter().filter(|one| one.is_ok()).count();
    assert!(waited.iter().all(|one| one.as_ref().err().is_none_or(Error::is_denied)));
    assert!((35..=40).contains(&served), "10 at once and 10 a second for 3 s: {served}");
    assert!(start.elapsed() <= SECOND * 3 + GRAIN, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_waited_for_and_held_by_the_guard() {
    let (limiter, running, ada) = (limiter(Quota::concurrency(2)), AtomicUsize::new(0), ada());
    let jobs = (0..6).map(|_| async {
        let (_, slots) = limiter.until_ready(&ada, SECOND * 60).await.expect("they end");
        assert!(running.fetch_add(1, Ordering::Relaxed) < 2, "there are two slots");
        sleep(SECOND * 5).await;
        running.fetch_sub(1, Ordering::Relaxed);
        drop(slots);
    });
    timeout(FOREVER, join_all(jobs)).await.expect("they end");
}

/// Has so many wait while one slot is held for a time; how long that takes, and whether each has one in the end.
async fn wait_for_a_slot(waiting: usize, held_for: Duration, patience: Duration) -> (Duration, Vec<bool>) {
    let (limiter, ada) = (limiter(Quota::concurrency(1).max_hold(2 * HOUR)), ada());
    let (decision, slots) = limiter.acquire(&ada).await.expect("memory decides");
    assert!(decision.is_allowed());
    let start = Instant::now();
    let releases = async {
        sleep(held_for).await;
        drop(slots);
    };
    let (waited, ()) = futures::join!(join_all((0..waiting).map(|_| limiter.until_ready(&ada, patience))), releases);
    assert!(waited.iter().all(|one| one.as_ref().err().is_none_or(Error::is_denied)));
    (start.elapsed(), waited.iter().map(Result::is_ok).collect())
}

#[tokio::test(start_paused = true)]
async fn one_of_those_who_wait_has_a_slot_that_is_free_just_before_their_timeout() {
    for held_for in [100, 4_300, 4_600, 4_900, 4_990].map(Duration::from_millis) {
        let (took, served) = wait_for_a_slot(6, held_for, SECOND * 5).await;
        assert!(took <= SECOND * 5 + GRAIN && served.contains(&true), "held for {held_for:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_held_for_an_hour_is_waited_for() {
    let (took, served) = wait_for_a_slot(1, HOUR, 2 * HOUR).await;
    assert!(served == [true] && (HOUR..=HOUR + 2 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_without_a_wait_was_asked_forever() {
    let asked = Arc::new(AtomicUsize::new(0));
    let store = StoreFn::new(move |_| {
        assert!(asked.fetch_add(1, Ordering::Relaxed) <= 1_000, "it is asked in a busy loop");
        false
    });
    let limiter = Limiter::new(store.retry_after(Duration::ZERO), [Rule::new("mail", Quota::per_hour(1))]);
    let asking = timeout(SECOND * 60, limiter.until_ready(&ada(), SECOND)).await;
    assert!(asking.expect("it ends by its timeout").unwrap_err().is_denied());
}
