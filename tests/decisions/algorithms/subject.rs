//! A store under test, and its clock.

use std::sync::Arc;
use std::time::Duration;

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{BackendStore, Change, Check, Deadline, Decided, Settlement};
use tollgate::{MemoryStore, Quota, RedisStore, Store};

pub(crate) use crate::support::checks::check;
use crate::support::checks::counter;
pub(crate) use crate::support::clock::EPOCH_US;
use crate::support::clock::ManualClock;
use crate::support::server::RedisServer;
use crate::support::table::Table;

/// The key of tests that need but one.
pub(crate) const KEY: &str = "ada";

pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) clock: ManualClock,
    store: Arc<dyn Store>,
    server: Option<RedisServer>,
}

/// What a Redis key holds: its name, its value of whatever type, and when it expires in milliseconds.
pub(crate) type Kept = (String, Vec<u8>, i64);

/// Runs a test on each kind of store.
pub(crate) async fn on_each_store(test: impl AsyncFn(&Subject)) {
    test(&Subject::memory()).await;
    test(&Subject::redis().await).await;
    test(&Subject::database(Duration::ZERO)).await;
    test(&Subject::database(Duration::from_micros(1))).await;
}

impl Subject {
    /// One that goes by the test's clock alone, so that nothing is forgotten as real time passes.
    pub(crate) fn by_clock_alone() -> Self {
        Self::memory()
    }

    pub(crate) fn memory() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::builder().with_clock(clock.reader()).build());
        Self { name: "memory", clock, store, server: None }
    }

    /// One on a database, which may wait; without waiting it decides at once.
    pub(crate) fn database(trip: Duration) -> Self {
        let clock = ManualClock::new();
        let name = if trip.is_zero() { "a database at once" } else { "a database that waits" };
        let settings = BackendStore::builder(Table::new(clock.reader(), trip)).budget(Duration::from_secs(10));
        Self { name, clock, store: Arc::new(settings.build().expect("valid settings")), server: None }
    }

    pub(crate) async fn redis() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings =
            RedisStore::builder().without_deny_cache().with_clock(clock.reader()).budget(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        Self { name: "Redis", clock, store: Arc::new(store), server: Some(server) }
    }

    pub(crate) async fn decide(&self, checks: &[Check], deadline: Deadline) -> Decided {
        self.store.decide(checks, deadline).wait().await.expect("the store is there")
    }

    /// Takes units at a time, which the store must allow.
    pub(crate) async fn take(&self, now: u64, quota: Quota, cost: u64) -> Decided {
        self.clock.set(now);
        let decided = self.decide(&[check(KEY, quota, cost)], Deadline::none()).await;
        assert!(decided.decision.is_allowed(), "{}: {decided:?}", self.name);
        decided
    }

    /// Looks at what remains at a time.
    pub(crate) async fn remaining(&self, now: u64, quota: Quota) -> u64 {
        self.take(now, quota, 0).await.decision.outcomes()[0].remaining()
    }

    /// Settles the only check of a decision.
    pub(crate) async fn settle(&self, decided: Decided, change: Change) {
        self.settle_all(decided, &[Settlement::new(0, change)]).await;
    }

    /// The same, at a time.
    pub(crate) async fn settle_at(&self, now: u64, decided: Decided, change: Change) {
        self.clock.set(now);
        self.settle(decided, change).await;
    }

    /// Settles a decision, and lets what happens in the background be done: the store keeps the
    /// order of what it is asked.
    pub(crate) async fn settle_all(&self, decided: Decided, changes: &[Settlement]) {
        drop(self.store.settle(decided.receipt, changes));
        drop(self.decide(&[check("nobody", Quota::per_second(1), 0)], Deadline::none()).await);
    }

    pub(crate) async fn adjust(&self, quota: Quota, change: Change) {
        self.store.adjust(&counter(KEY, quota), change).wait().await.expect("the store is there");
    }

    /// The same, at a time.
    pub(crate) async fn adjust_at(&self, now: u64, quota: Quota, change: Change) {
        self.clock.set(now);
        self.adjust(quota, change).await;
    }

    pub(crate) async fn reset(&self, quota: Quota) {
        self.store.reset(&counter(KEY, quota)).wait().await.expect("the store is there");
    }

    /// Puts something else under the only key in Redis; `false` for what is kept nowhere else.
    pub(crate) fn overwrite(&self, commands: &[&[&str]]) -> bool {
        let Some(server) = &self.server else { return false };
        let [key] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
        for command in commands {
            let command: Vec<&str> = command.iter().map(|word| if *word == "KEY" { key } else { *word }).collect();
            let _: Value = server.ask(&command);
        }
        true
    }

    /// All that Redis holds; nothing for memory.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let Some(server) = &self.server else { return Vec::new() };
        let keys = server.keys().into_iter();
        keys.map(|key| (key.clone(), server.ask(&["DUMP", &key]), server.ask(&["PEXPIRETIME", &key]))).collect()
    }

    /// Checks that the only key in Redis lives at least as long as its state matters, and at most a
    /// window longer. One that lives for less than a second may be gone already.
    #[track_caller]
    pub(crate) fn assert_lives(&self, reset_after: Duration, window: Duration) {
        let Some(server) = self.server.as_ref().filter(|_| reset_after >= Duration::from_secs(1)) else { return };
        let [key] = &server.keys()[..] else { panic!("one key was expected, not {:?}", server.keys()) };
        let ttl = Duration::from_millis(server.ask::<u64>(&["PTTL", key]));
        // Redis counts lives in whole milliseconds, from a whole one; the test's own time may have passed.
        let most = reset_after + window + Duration::from_millis(2);
        assert!(ttl + Duration::from_secs(5) > reset_after && ttl <= most, "{key}: {ttl:?} for {reset_after:?}");
    }
}
