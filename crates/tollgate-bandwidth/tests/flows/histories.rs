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

    fn passed(&self) -> u64 {
        self.passed.iter().map(|passed| passed.load(Ordering::SeqCst)).sum()
    }
}

/// What disturbs a history.
#[derive(Clone, Copy)]
struct Faults {
    fails: bool,
    resets: bool,
    delays: bool,
}

async fn run(seed: u64, quota: Quota, faults: Faults) -> (History, Arc<Counts>, Duration) {
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
            0 if faults.fails => store.fail(),
            1 if faults.resets => drop(history.limiter.reset(&key(rng.usize(..KEYS))).await),
            2 if faults.delays => store.delay(Duration::from_millis(rng.u64(0..60))),
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

/// Runs histories; `check` receives what has passed, and how long it took.
async fn histories(faults: Faults, check: impl Fn(u64, Quota, &History, Duration)) {
    let base = fastrand::u64(..);
    for seed in (0..many([60, 1_000])).map(|number| base.wrapping_add(number)) {
        let quota = quota(&mut fastrand::Rng::with_seed(!seed));
        let (history, counts, elapsed) = run(seed, quota, faults).await;
        assert_eq!(counts.taken(), history.passed(), "seed {seed}, {quota}: what was admitted passed or is refunded");
        check(seed, quota, &history, elapsed);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0, "seed {seed}: tasks are left");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_passes_than_the_quota_admits() {
    let faults = Faults { fails: false, resets: false, delays: true };
    histories(faults, |seed, quota, history, elapsed| {
        let windows = elapsed.as_nanos() * u128::from(quota.limit()) / quota.window().as_nanos();
        let gained = u64::try_from(windows).expect("small");
        for passed in history.passed.iter() {
            let passed = passed.load(Ordering::SeqCst);
            // A window may begin full, and end full.
            let most = quota.capacity().max(2 * quota.limit()) + gained;
            assert!(passed <= most, "seed {seed}, {quota}: {passed} in {elapsed:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn units_are_conserved_through_failures_and_resets() {
    histories(Faults { fails: true, resets: true, delays: true }, |_, _, _, _| {}).await;
}
