//! Callers who go away while they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tollgate::store::{Ask, Store};
use tollgate::{Quota, RedisStore};

use crate::others::{Tally, ask};
use crate::rig::{Rig, assert_none_failed, every_runtime, ms};
use crate::support::checks::check;

const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// Runs out meanwhile.
const SCARCE: Quota = Quota::token_bucket(500, MONTH);
/// Does not.
const PLENTY: Quota = Quota::token_bucket(100_000, MONTH);
const SPAN: Duration = ms(800);

/// What those who go away asked for, and what of it they were told.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    admitted: AtomicU64,
}

impl Counts {
    fn get(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed))
    }
}

/// Waits for some polls, or for some milliseconds, and goes away.
async fn vanish(store: RedisStore, key: String, quota: Quota, counts: Arc<Counts>) {
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        counts.asked.fetch_add(1, Ordering::Relaxed);
        let asked = store.decide(&[check(&key, quota, 1)], Ask::default()).wait();
        // The shortest times are over after one poll or two.
        let answer = timeout(ms([0, 0, 1, 2, 200][fastrand::usize(..5)]), asked).await.ok();
        let is_admitted = answer.is_some_and(|answer| answer.is_ok_and(|decided| decided.decision.is_allowed()));
        counts.admitted.fetch_add(is_admitted.into(), Ordering::Relaxed);
        // What is refused is often refused at once: no task may keep its worker.
        sleep(ms(fastrand::u64(..2))).await;
    }
}

async fn stay(store: RedisStore, first: u32) -> Tally {
    let (mut tally, end) = (Tally::default(), Instant::now() + SPAN);
    for number in first.. {
        let start = Instant::now();
        if start > end {
            break;
        }
        let answer = ask(&store, number).await;
        tally.add((start.elapsed(), answer));
    }
    tally
}

/// Sixteen who stay beside as many who vanish from a scarce key and from a plentiful one.
fn ask_beside_vanishing(rig: &Rig, attempt: usize) -> Tally {
    let [scarce, plenty] = [SCARCE, PLENTY].map(|quota| (format!("key-{attempt}"), quota, Arc::<Counts>::default()));
    let mut vanishing = Vec::new();
    for (key, quota, counts) in [&scarce, &plenty] {
        let vanish = || vanish(rig.store.clone(), format!("{key}-{}", quota.limit()), *quota, Arc::clone(counts));
        vanishing.extend((0..8).map(|_| rig.runtime.spawn(vanish())));
    }
    let staying = (0..16).map(|task| rig.runtime.spawn(stay(rig.store.clone(), task * 10_000_000)));
    let staying: Vec<_> = staying.collect();
    let tallies = rig.runtime.block_on(async {
        join_all(vanishing).await;
        join_all(staying).await
    });
    for (key, quota, counts) in [scarce, plenty] {
        assert_conserved(rig, &format!("{key}-{}", quota.limit()), quota, counts.get());
    }
    tallies.into_iter().map(|tally| tally.expect("none fails")).fold(Tally::default(), Tally::and)
}

/// Who was told so was admitted, nobody who did not ask, and no more than there was.
fn assert_conserved(rig: &Rig, key: &str, quota: Quota, (admitted, asked): (u64, u64)) {
    // A machine that stalls is no failure here.
    let look = || rig.runtime.block_on(rig.store.decide(&[check(key, quota, 0)], Ask::default()).wait()).ok();
    let looked = (0..50).find_map(|_| look()).expect("Redis answers");
    let used = quota.limit() - looked.decision.outcomes()[0].remaining();
    println!("{key}: {asked} asked, {admitted} were told that they are admitted, {used} are");
    assert!(0 < admitted && admitted <= used && used <= asked.min(quota.limit()), "{admitted}, {used}, {asked}");
}

#[test]
fn callers_who_vanish_stall_no_others_and_units_are_conserved() {
    for rig in every_runtime() {
        let mut attempt = 0;
        assert_none_failed(&format!("callers who vanish, on {} threads", rig.threads()), |_| {
            attempt += 1;
            ask_beside_vanishing(&rig, attempt)
        });
    }
}
