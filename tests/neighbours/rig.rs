//! A store on a Redis of its own, and the runtime of a server.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;
use tollgate::store::{Ask, Change, Check, Receipt, Settlement, Store};
use tollgate::{Quota, RedisStore};

use crate::others::Tally;
use crate::support::checks;
use crate::support::server::RedisServer;
use crate::watch::Watch;

pub(crate) const WORKERS: usize = 4;
/// The default budget of a decision.
pub(crate) const BUDGET: Duration = ms(100);
/// No key comes near it, and hardly a unit returns during a test.
pub(crate) const AMPLE: Quota = Quota::token_bucket(100_000, Duration::from_secs(30 * 86_400));

/// A scenario is measured again if the machine stalled meanwhile: then others fail without a neighbour.
const ATTEMPTS: usize = 10;
const LOOKS: usize = 10;

pub(crate) struct Rig {
    pub(crate) redis: RedisServer,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: RedisStore,
    /// Ends the thread that drives a runtime without workers.
    _driven: oneshot::Sender<()>,
    /// Scenarios are about times: they take turns.
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    /// A store that the runtime with several workers has connected and used.
    pub(crate) fn new() -> Self {
        Self::on(workers())
    }

    /// The same on a runtime of another kind.
    pub(crate) fn on(runtime: Runtime) -> Self {
        let (turn, redis, runtime) = (turn(), RedisServer::start(), Arc::new(runtime));
        let driven = drive(Arc::clone(&runtime));
        let store = runtime.block_on(connect(&redis.url()));
        Self { redis, runtime, store, _driven: driven, _turn: turn }
    }

    pub(crate) fn threads(&self) -> usize {
        self.runtime.metrics().num_workers()
    }

    /// Starts decisions, one every so often, and waits for all of them.
    pub(crate) fn ask_steadily(&self, count: u32, apart: Duration) -> Tally {
        Tally::of_steady(self.runtime.handle(), &self.store, count, apart)
    }

    /// Units left to a key.
    pub(crate) fn left(&self, key: &str) -> u64 {
        self.runtime.block_on(left(&self.store, key))
    }

    /// Checks that keys have all their units within a second.
    #[track_caller]
    pub(crate) fn assert_whole(&self, keys: &[String]) {
        let (start, mut lacking) = (Instant::now(), keys.len());
        while lacking > 0 && start.elapsed() < ms(1_000) {
            lacking = keys.iter().filter(|key| self.left(key) < AMPLE.capacity()).count();
        }
        assert_eq!(lacking, 0, "{lacking} of {} settlements did not arrive", keys.len());
    }
}

/// A scenario's turn among those of this process.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime as a server has it.
pub(crate) fn workers() -> Runtime {
    few_workers(WORKERS)
}

/// A rig on each kind of runtime, one after the other: with several workers, with two, and with one thread.
pub(crate) fn every_runtime() -> impl Iterator<Item = Rig> {
    [workers, || few_workers(2), current_thread].into_iter().map(|runtime: fn() -> Runtime| Rig::on(runtime()))
}

/// Waits until so many have begun.
#[track_caller]
pub(crate) fn await_all(heard: &Receiver<()>, count: usize) {
    for _ in 0..count {
        heard.recv_timeout(ms(5_000)).expect("each of them begins");
    }
}

/// Keys by number.
pub(crate) fn keys(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{kind}-{number}")).collect()
}

pub(crate) fn few_workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().expect("a runtime can be built")
}

/// Drives a runtime without workers on a thread of its own, as the main thread of a server does, until what is
/// returned is dropped.
fn drive(runtime: Arc<Runtime>) -> oneshot::Sender<()> {
    let (driven, end) = oneshot::channel();
    if runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
        thread::spawn(move || runtime.block_on(end));
    }
    driven
}

/// A runtime that only the thread drives that waits for something on it.
pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
}

/// A store that has decided once.
pub(crate) async fn connect(url: &str) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("the server was started");
    left(&store, "warm").await;
    store
}

/// Units left to a key. A machine that stalls is no failure here.
pub(crate) async fn left(store: &RedisStore, key: &str) -> u64 {
    for _ in 0..LOOKS {
        if let Ok(looked) = store.decide(&[check(key, 0)], Ask::default()).wait().await {
            return looked.decision.outcomes()[0].remaining();
        }
    }
    panic!("Redis did not answer {LOOKS} times");
}

/// Takes units of a key; returns the receipt.
pub(crate) async fn take(store: &RedisStore, key: &str, cost: u64) -> Receipt {
    store.decide(&[check(key, cost)], Ask::default()).wait().await.expect("Redis answers").receipt
}

/// Gives back all that was taken.
pub(crate) fn give_back(store: &RedisStore, receipt: Receipt) {
    let units = receipt.items()[0].units;
    drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(units))]));
}

pub(crate) fn check(key: &str, cost: u64) -> Check {
    checks::check(key, AMPLE, cost)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Checks that none of the others failed, and that the circuit breaker did not open; prints what
/// became of them.
#[track_caller]
pub(crate) fn assert_none_failed(scenario: &str, mut attempt: impl FnMut(&Watch) -> Tally) {
    for left in (0..ATTEMPTS).rev() {
        let watch = Watch::start();
        let tally = attempt(&watch);
        let seen = watch.stop();
        println!("{scenario}: {tally}; {seen}");
        let is_well = tally.failed() == 0 && seen.opened == 0;
        if !is_well && left > 0 && seen.is_of_a_busy_machine() {
            continue;
        }
        assert_eq!(tally.failed(), 0, "{scenario}: {tally}");
        assert_eq!(seen.opened, 0, "{scenario}: the circuit breaker opened");
        return;
    }
}
