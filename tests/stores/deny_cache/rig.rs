//! A cache around a store that records how often it is asked, and their clock.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tollgate::store::{Ask, AskMode, Check, DenyCache, DenyCacheBuilder, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Error, MemoryStore, Quota, Source};
use tollgate_test::{Recorded, RecordingStore};

use crate::support::checks::check;
use crate::support::time::memory;

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

/// What a future has at once.
#[track_caller]
pub(super) fn now<T>(answer: impl Future<Output = Result<T, Error>>) -> T {
    answer.now_or_never().expect("it is there at once").expect("memory does not fail")
}

pub(super) struct Rig<S = MemoryStore> {
    pub(super) clock: ManualClock,
    pub(super) inner: Arc<S>,
    pub(super) store: DenyCache<RecordingStore<Arc<S>>>,
}

type Settings<S> = DenyCacheBuilder<RecordingStore<Arc<S>>>;

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(|settings| settings)
    }

    /// A rig whose cache is set in another way.
    pub(super) fn with(set: impl FnOnce(Settings<MemoryStore>) -> Settings<MemoryStore>) -> Self {
        let clock = ManualClock::new();
        Self::around(memory(&clock), clock, set)
    }
}

impl<S: Store> Rig<S> {
    pub(super) fn around(inner: S, clock: ManualClock, set: impl FnOnce(Settings<S>) -> Settings<S>) -> Self {
        let inner = Arc::new(inner);
        let store = set(DenyCache::builder(RecordingStore::new(Arc::clone(&inner))).clock(clock.clone())).build();
        Self { clock, inner, store }
    }

    /// How often the inner store was asked for a decision.
    pub(super) fn calls(&self) -> usize {
        self.store.get_ref().recorded().iter().filter(|call| matches!(call, Recorded::Decide(_))).count()
    }

    #[track_caller]
    pub(super) fn decided(&self, checks: &[Check]) -> StoreDecision {
        now(self.store.decide(checks, Ask::default()).wait())
    }

    #[track_caller]
    pub(super) fn decide(&self, checks: &[Check]) -> Decision {
        self.decided(checks).decision
    }

    /// What the inner store says, past the cache.
    #[track_caller]
    pub(super) fn plain(&self, checks: &[Check]) -> Decision {
        now(self.inner.decide(checks, Ask::default()).wait()).decision
    }

    /// Takes all there is.
    #[track_caller]
    pub(super) fn exhaust(&self, key: &str, quota: Quota) {
        for _ in 0..quota.capacity() {
            assert!(self.decide(&[check(key, quota, 1)]).is_allowed());
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
        self.asks_by(checks, AskMode::Normal)
    }

    #[track_caller]
    pub(super) fn asks_by(&self, checks: &[Check], mode: AskMode) -> Decision {
        let before = self.calls();
        let decision = now(self.store.decide(checks, Ask::default().mode(mode)).wait()).decision;
        assert_eq!((self.calls() - before, decision.source()), (1, Source::Store), "{decision:?}");
        decision
    }

    /// Checks that a request is refused and the inner store not asked.
    #[track_caller]
    pub(super) fn remembers(&self, checks: &[Check]) -> Decision {
        let before = self.calls();
        let decision = self.decide(checks);
        assert_eq!((self.calls() - before, decision.source()), (0, Source::DenyCache), "{decision:?}");
        assert!(!decision.is_allowed() && decision.retry_after() != Some(Duration::ZERO), "{decision:?}");
        decision
    }
}
