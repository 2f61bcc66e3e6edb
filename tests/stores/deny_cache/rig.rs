//! A cache around a memory store that counts how often it is asked, and their clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::{Answer, Check, Deadline, Decided, DenyCacheBuilder};
use tollgate::{Decision, DenyCache, Error, MemoryStore, Quota, Source, Store};

use crate::support::checks::check;
use crate::support::clock::ManualClock;
use crate::support::doubles::passes_on;

pub(super) const MS: u64 = 1_000;
pub(super) const S: u64 = 1_000 * MS;

const HALF: Duration = Duration::from_millis(500);

/// One of each algorithm: four units can be taken at once, and one is back within the cap.
pub(super) const EACH: [Quota; 5] = [
    Quota::fixed_window(4, HALF),
    Quota::sliding_log(4, HALF),
    Quota::sliding_window(4, HALF),
    Quota::token_bucket(4, HALF),
    Quota::leaky_bucket(4, HALF).queue(3),
];

/// Counts the decisions a store is asked for.
#[derive(Debug)]
pub(super) struct Counting<S> {
    pub(super) store: S,
    calls: AtomicU64,
}

impl<S> Counting<S> {
    pub(super) fn new(store: S) -> Self {
        Self { store, calls: AtomicU64::new(0) }
    }
}

impl<S: Store> Store for Counting<S> {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.store.decide(checks, deadline)
    }

    passes_on!(store: settle, adjust, reset);
}

pub(super) struct Rig<S = MemoryStore> {
    pub(super) clock: ManualClock,
    pub(super) store: DenyCache<Arc<Counting<S>>>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(|settings| settings)
    }

    /// A rig whose cache is set in another way.
    pub(super) fn with(set: impl FnOnce(DenyCacheBuilder) -> DenyCacheBuilder) -> Self {
        let clock = ManualClock::new();
        let memory = MemoryStore::builder().capacity(4_000_000).with_clock(clock.reader()).build();
        Self::around(clock, memory, set)
    }
}

impl<S: Store> Rig<S> {
    pub(super) fn around(clock: ManualClock, inner: S, set: impl FnOnce(DenyCacheBuilder) -> DenyCacheBuilder) -> Self {
        let settings = set(DenyCache::builder().with_clock(clock.reader()));
        let store = settings.build(Arc::new(Counting::new(inner))).expect("the settings are valid");
        Self { clock, store }
    }

    /// How often the inner store was asked.
    pub(super) fn calls(&self) -> u64 {
        self.store.inner().calls.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub(super) fn decided(&self, checks: &[Check]) -> Decided {
        let Answer::Ready(decided) = self.store.decide(checks, Deadline::none()) else {
            panic!("memory answers at once")
        };
        decided.expect("memory does not fail")
    }

    #[track_caller]
    pub(super) fn decide(&self, checks: &[Check], _: Deadline) -> Decision {
        self.decided(checks).decision
    }

    /// What the inner store says, past the cache.
    #[track_caller]
    pub(super) fn plain(&self, checks: &[Check]) -> Decision {
        let Answer::Ready(decided) = self.store.inner().store.decide(checks, Deadline::none()) else {
            panic!("memory answers at once")
        };
        decided.expect("memory does not fail").decision
    }

    /// Takes all there is.
    #[track_caller]
    pub(super) fn exhaust(&self, key: &str, quota: Quota) {
        for _ in 0..quota.capacity() {
            assert!(self.decide(&[check(key, quota, 1)], Deadline::none()).is_allowed());
        }
    }

    /// Takes all there is, and has the next request refused.
    #[track_caller]
    pub(super) fn refuse(&self, key: &str, quota: Quota) {
        self.exhaust(key, quota);
        let _ = self.asks(&[check(key, quota, 1)]);
    }

    /// Checks that the inner store is asked, once; and whether it refuses.
    #[track_caller]
    pub(super) fn asks(&self, checks: &[Check]) -> Decision {
        let before = self.calls();
        let decision = self.decide(checks, Deadline::none());
        assert_eq!((self.calls() - before, decision.source()), (1, Source::Store), "{decision:?}");
        decision
    }

    /// Checks that a request is refused and the inner store not asked.
    #[track_caller]
    pub(super) fn remembers(&self, checks: &[Check]) -> Decision {
        let before = self.calls();
        let decision = self.decide(checks, Deadline::none());
        assert_eq!((self.calls() - before, decision.source()), (0, Source::DenyCache), "{decision:?}");
        assert!(!decision.is_allowed() && decision.retry_after() != Some(Duration::ZERO), "{decision:?}");
        decision
    }
}
