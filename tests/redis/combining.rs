//! Decisions of one process share script calls, and none depends on another's caller.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tokio::time::timeout;
use tollgate::store::{Ask, Store};
use tollgate::{Quota, RedisStore};

use super::stores::{MONTH, decide, first_remaining, patient_store, remaining, take};
use crate::support::checks::check;
use crate::support::server::RedisServer;

const TASKS: usize = 100;
const EACH: usize = 1_000;
const KEYS: usize = 10;
const AMPLE: Quota = Quota::fixed_window(1_000_000, MONTH);

/// Takes a unit of a key, and what then remains; `None` for a caller that went away at some await.
async fn take_or_leave(store: &RedisStore, key: &str) -> Option<u64> {
    let deciding = store.decide(&[check(key, AMPLE, 1)], Ask::default()).wait();
    let decided = if fastrand::u8(..3) == 0 {
        timeout(Duration::from_micros(fastrand::u64(..400)), deciding).await.ok()?
    } else {
        deciding.await
    };
    Some(first_remaining(&decided.expect("no decision is lost").decision))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_lose_delay_and_duplicate_no_other_s_decision() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut seen = Vec::with_capacity(EACH);
            for turn in 0..EACH {
                let key = (turn % KEYS).to_string();
                seen.extend(take_or_leave(&store, &key).await.map(|left| (key, left)));
            }
            seen
        })
    });
    let seen =
        join_all(tasks).await.into_iter().flat_map(|task| task.expect("every decision that is waited for is made"));
    let seen: Vec<(String, u64)> = seen.collect();
    let (made, left) = (seen.len() as u64, (TASKS * EACH - seen.len()) as u64);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len() as u64, made, "no unit is told to two callers");
    assert!(left > 1_000, "only {left} callers went away");
    let mut used = 0;
    for key in 0..KEYS {
        let look = decide(&store, &[check(&key.to_string(), AMPLE, 0)]).await.decision;
        used += AMPLE.limit() - first_remaining(&look);
    }
    assert!((made..=made + left).contains(&used), "{used} used: {made} made, {left} left");
    assert_eq!(server.keys().len(), KEYS);
    let calls = server.scripts();
    assert!(calls < (TASKS * EACH) as u64 / 4, "{calls} calls are not shared");
}

#[tokio::test]
async fn a_caller_that_goes_away_before_its_call_takes_nothing() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let mut callers: Vec<_> = (0..8).map(|_| Box::pin(take(&store, "ada", 1))).collect();
    for caller in &mut callers {
        assert!(poll!(caller).is_pending());
    }
    drop(callers.drain(5..));
    for caller in callers {
        drop(caller.await.expect("decided"));
    }
    assert_eq!(remaining(&store, "ada").await, 45, "four calls were sent at once, the others waited");
}

#[tokio::test]
async fn four_callers_have_a_call_each_and_the_others_of_a_dozen_share_few() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    remaining(&store, "ada").await;
    for (callers, calls) in [(4, 4..=4), (12, 5..=7)] {
        let before = server.scripts();
        join_all((0..callers).map(|_| take(&store, "ada", 1)))
            .await
            .into_iter()
            .for_each(|taken| drop(taken.expect("decided")));
        let made = server.scripts() - before;
        assert!(calls.contains(&made), "{callers} callers made {made} calls");
    }
}
