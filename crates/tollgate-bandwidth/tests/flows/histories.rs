//! Random histories: what passes was admitted, and what was admitted has passed or is refunded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::test_util::FailingStore;
use tollgate::{Key, Limiter, OnFailure, Quota};
use tollgate_bandwidth::Flow;

use super::audit::{Counts, limiter, memory};
use crate::support::slow::many;

/// One history: some keys, and what has passed of each.
#[derive(Clone)]
struct History {
    limiter: Limiter,
    passed: Arc<[AtomicU64; KEYS]>,
    most: u64,
}

const KEYS: usize = 3;

fn key(number: usize) -> Key {
    Key::new("user", number.to_string())
}

impl History {
    /// Takes units in a random way, and may leave in between.
    async fn take(&self, flow: &Flow, number: usize, rng: &mut fastrand::Rng) {
        let units = rng.u64(0..=self.most);
        let patience = Duration::from_millis(rng.u64(0..400));
        let taken = match rng.u8(..4) {
            0 => flow.try_acquire(units).is_ok(),
            1 => timeout(patience, flow.check(units)).await.is_ok_and(|taken| taken.is_ok()),
            2 => timeout(patience, flow.acquire(units)).await.is_ok_and(|taken| taken.is_ok()),
            _ => {
                // Polled once, and left alone for a while.
                let mut taking = Box::pin(flow.acquire(units));
                let first = futures::FutureExt::now_or_never(taking.as_mut());
                if let Some(taken) = first {
                    taken.is_ok()
                } else {
                    sleep(3 * patience).await;
                    timeout(patience, taking).await.is_ok_and(|taken| taken.is_ok())
                }
            }
        };
        if taken {
            self.passed[number].fetch_add(units, Ordering::SeqCst);
        }
    }

    async fn client(self, mut rng: fastrand::Rng, until: Instant) {
        while Instant::now() < until {
            let number = rng.usize(..KEYS);
            let Ok(flow) = Flow::of(&self.limiter, &key(number)).await else {
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            for _ in 0..rng.u32(..20) {
                self.take(&flow, number, &mut rng).await;
                if rng.bool() {
                    sleep(Duration::from_millis(rng.u64(0..300))).await;
                }
            }
        }
    }
}

/// Runs a history, whose store is slow now and then; it also fails and is reset if `fails`.
async fn run(seed: u64, quota: Quota, fails: bool) -> (History, Arc<Counts>, Duration) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let store = FailingStore::new(memory());
    let (limiter, counts) = limiter(store.clone(), quota);
    let limiter = limiter.on_failure(OnFailure::Deny);
    let most = [quota.capacity() / 20 + 1, quota.capacity() / 2 + 1, 2 * quota.capacity()][rng.usize(..3)];
    let history = History { limiter, passed: Arc::default(), most };
    let start = Instant::now();
    let until = start + Duration::from_secs(rng.u64(1..10));
    let mut clients = JoinSet::new();
    for _ in 0..rng.usize(1..8) {
        clients.spawn(history.clone().client(rng.fork(), until));
    }
    while Instant::now() < until {
        sleep(Duration::from_millis(rng.u64(1..500))).await;
        match rng.u8(..4) {
            0 if fails => store.fail(),
            1 if fails => drop(history.limiter.reset(&key(rng.usize(..KEYS))).await),
            2 => store.delay(Duration::from_millis(rng.u64(0..60))),
            _ => store.work(),
        }
    }
    store.work();
    clients.join_all().await;
    let elapsed = start.elapsed();
    // A call in flight is refunded when it is decided.
    sleep(Duration::from_secs(1)).await;
    (history, counts, elapsed)
}

fn quota(rng: &mut fastrand::Rng) -> Quota {
    let limit = [7, 100, 5_000, 1_000_000][rng.usize(..4)];
    let window = Duration::from_millis([500, 1_000, 10_000][rng.usize(..3)]);
    match rng.u8(..4) {
        0 => Quota::token_bucket(limit, window).burst(1 + limit / 3),
        1 => Quota::fixed_window(limit, window),
        2 => Quota::sliding_window(limit, window),
        _ => Quota::token_bucket(limit, window),
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_was_admitted_and_what_was_admitted_passes_or_is_refunded() {
    let base = fastrand::u64(..);
    for number in 0..many([120, 2_000]) {
        let (seed, fails) = (base.wrapping_add(number), number % 2 == 0);
        let quota = quota(&mut fastrand::Rng::with_seed(!seed));
        let (history, counts, elapsed) = run(seed, quota, fails).await;
        let passed = history.passed.each_ref().map(|passed| passed.load(Ordering::SeqCst));
        let what = format!("seed {seed}, {quota}, fails: {fails}: {passed:?} in {elapsed:?}");
        assert_eq!(counts.taken(), passed.iter().sum::<u64>(), "{what}");
        let gained = elapsed.as_nanos() * u128::from(quota.limit()) / quota.window().as_nanos();
        // A window may begin full, and end full.
        let most = quota.capacity().max(2 * quota.limit()) + u64::try_from(gained).expect("small");
        assert!(fails || passed.iter().all(|passed| *passed <= most), "{what}");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "{what}: tasks are left");
    }
}
