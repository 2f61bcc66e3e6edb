//! A cache around a store that records how often it is asked, and their clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::{Ask, Check, DenyCache, DenyCacheBuilder, MaybeFuture, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, MemoryStore, Quota, Source};
use tollgate_test::{Recorded, RecordingStore};

use crate::support::checks::check;

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

pub(super) struct Rig<S = MemoryStore> {
    pub(super) clock: ManualClock,
    pub(super) inner: Arc<S>,
    pub(super) store: DenyCache<RecordingStore<Arc<S>>>,
    calls: AtomicU64,
}

type Settings<S> = DenyCacheBuilder<RecordingStore<Arc<S>>>;

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(|settings| settings)
    }

    /// A rig whose cache is set in another way.
    pub(super) fn with(set: impl FnOnce(Settings<MemoryStore>) -> Settings<MemoryStore>) -> Self {
        let clock = ManualClock::new();
        let memory = MemoryStore::builder().capacity(4_000_000).clock(clock.clone()).build();
        Self::around(clock, memory, set)
    }
}

impl<S: Store> Rig<S> {
    pub(super) fn around(clock: ManualClock, inner: S, set: impl FnOnce(Settings<S>) -> Settings<S>) -> Self {
        let inner = Arc::new(inner);
        let store = set(DenyCache::builder(RecordingStore::new(Arc::clone(&inner))).clock(clock.clone())).build();
        Self { clock, inner, store, calls: AtomicU64::new(0) }
    }

    /// How often the inner store was asked for a decision.
    pub(super) fn calls(&self) -> u64 {
        let recorded = self.store.get_ref().take();
        let decisions = recorded.iter().filter(|call| matches!(call, Recorded::Decide(_)));
        let calls = decisions.count() as u64;
        self.calls.fetch_add(calls, Ordering::SeqCst) + calls
    }

    #[track_caller]
    pub(super) fn decided(&self, checks: &[Check]) -> StoreDecision {
        let MaybeFuture::Ready(decided) = self.store.decide(checks, Ask::default()) else {
            panic!("memory answers at once")
        };
        // Records do not pile up, however many requests there are.
        self.calls();
        decided.expect("memory does not fail")
    }

    #[track_caller]
    pub(super) fn decide(&self, checks: &[Check], _: Ask) -> Decision {
        self.decided(checks).decision
    }

    /// What the inner store says, past the cache.
    #[track_caller]
    pub(super) fn plain(&self, checks: &[Check]) -> Decision {
        let MaybeFuture::Ready(decided) = self.inner.decide(checks, Ask::default()) else {
            panic!("memory answers at once")
        };
        decided.expect("memory does not fail").decision
    }

    /// Takes all there is.
    #[track_caller]
    pub(super) fn exhaust(&self, key: &str, quota: Quota) {
        for _ in 0..quota.capacity() {
            assert!(self.decide(&[check(key, quota, 1)], Ask::default()).is_allowed());
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
        let decision = self.decide(checks, Ask::default());
        assert_eq!((self.calls() - before, decision.source()), (1, Source::Store), "{decision:?}");
        decision
    }

    /// Checks that a request is refused and the inner store not asked.
    #[track_caller]
    pub(super) fn remembers(&self, checks: &[Check]) -> Decision {
        let before = self.calls();
        let decision = self.decide(checks, Ask::default());
        assert_eq!((self.calls() - before, decision.source()), (0, Source::DenyCache), "{decision:?}");
        assert!(!decision.is_allowed() && decision.retry_after() != Some(Duration::ZERO), "{decision:?}");
        decision
    }
}
