//! Who asks after a refund finds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::{Ask, Change, Settlement, Store};
use tollgate::{Quota, RedisStore};

use crate::others::{Tally, ask};
use crate::rig::{Rig, assert_none_failed, every_runtime};
use crate::support::checks::check;
use crate::support::soon::soon;

const ONE: Quota = Quota::token_bucket(1, Duration::from_secs(30 * 86_400));
const TASKS: usize = 16;
const TURNS: usize = 100;

/// Takes the only unit and gives it back, again and again: it must be there each time.
async fn take_turns(store: RedisStore, key: String) -> Tally {
    let mut tally = Tally::default();
    for turn in 0..TURNS {
        let start = Instant::now();
        match store.decide(&[check(&key, ONE, 1)], Ask::default()).wait().await {
            Ok(decided) if decided.decision.is_allowed() => {
                drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(1))]));
                tally.add((start.elapsed(), Ok(())));
            }
            Ok(_) => tally.add((start.elapsed(), Err(format!("turn {turn}: the refund was not seen")))),
            Err(error) => tally.add((start.elapsed(), Err(format!("turn {turn}: {error:#}")))),
        }
        if fastrand::bool() {
            tokio::task::yield_now().await;
        }
    }
    tally
}

/// Others that keep calls in flight.
async fn crowd(store: RedisStore, mut number: u32, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let _ = ask(&store, number).await;
        number += 1;
    }
}

fn take_turns_in_a_crowd(rig: &Rig, attempt: usize) -> Tally {
    let stop = Arc::new(AtomicBool::new(false));
    for first in 0..8 {
        rig.runtime.spawn(crowd(rig.store.clone(), first * 10_000_000, Arc::clone(&stop)));
    }
    let key = |task: usize| format!("turns-{attempt}-{task}");
    let tasks = (0..TASKS).map(|task| rig.runtime.spawn(take_turns(rig.store.clone(), key(task))));
    let tallies = rig.runtime.block_on(soon(join_all(tasks.collect::<Vec<_>>())));
    stop.store(true, Ordering::Relaxed);
    tallies.into_iter().map(|tally| tally.expect("none fails")).fold(Tally::default(), Tally::and)
}

#[test]
fn the_next_decision_after_a_settlement_finds_it() {
    for rig in every_runtime() {
        let mut attempt = 0;
        let scenario = format!("a refund, then a decision in the same task, on {} threads", rig.threads());
        assert_none_failed(&scenario, |_| {
            attempt += 1;
            take_turns_in_a_crowd(&rig, attempt)
        });
    }
}
