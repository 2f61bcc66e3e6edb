//! A store around a store that answers what was refused a moment ago.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::question::{Asked, Question};
use super::refusals::Refusals;
use crate::core::{Error, Requirement};
use crate::store::clock::{Clock, SystemClock};
use crate::store::{
    Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Settlement, Settling, Store, StoreId,
};

/// The longest a refusal is served, unless another [cap](DenyCacheBuilder::cap) is set.
const DEFAULT_CAP: Duration = Duration::from_secs(1);
/// Refusals that are kept, unless another [capacity](DenyCacheBuilder::capacity) is set.
const DEFAULT_CAPACITY: usize = 100_000;

/// A store around a store that remembers its refusals, so that a flood of refused requests costs the
/// inner store nothing.
///
/// A [`RedisStore`](crate::RedisStore) has one inside. What the inner store refused for some time is
/// refused without asking it for that time, counted from when it was asked, but for 1 s at most (the
/// [cap](DenyCacheBuilder::cap)): the same cost from the same counter under the same quota, and a
/// larger one too, unless the algorithm is a sliding one. Those are asked about each cost, as only
/// the store knows how long another has to wait. Nothing is ever admitted that the inner store was
/// not asked about.
///
/// What one sees of it:
///
/// - [`Decision::source`](crate::Decision::source) is [`DenyCache`](crate::Source::DenyCache).
///   `retry_after` counts down to when the store said the request fits; over several policies it is
///   the largest that is known. `remaining` is what was told with the refusal.
/// - Policies of the request that are not known to refuse it are told as they were last seen in a
///   request refused like this (the first five of them), else with a `remaining` of 0.
/// - A refund, charge or reset through this store is seen at once; one that is settled in the
///   background and takes more than 100 ms to arrive, one made elsewhere, or the loss of a counter by
///   the store itself, within the cap.
/// - A changed quota is seen at once, as refusals belong to a quota.
///
/// Not answered from memory are looks (cost 0), checks [settled by outcome](crate::store::Settles),
/// and requests that have a check in [shadow](crate::store::Mode) or two of one counter. Bounded: by
/// default 100,000 refusals are kept, in 15 MB for requests of one policy and 30 MB at most, however
/// long their keys are and however many policies they have; while all are live, further ones are not
/// remembered. Of a counter 84 bits of a hash are kept that nobody outside can predict, as by a
/// [`MemoryStore`](crate::MemoryStore). Clones share them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{DenyCache, MemoryStore};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let store = DenyCache::builder().cap(Duration::from_millis(200)).build(MemoryStore::new())?;
/// assert_eq!(store.answered(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DenyCache<S> {
    /// The store that decides what is not known.
    inner: S,
    /// What it refused; shared by all clones.
    refusals: Arc<Refusals>,
}

/// Settings of a [`DenyCache`]: how long refusals are cached, how many, and by which clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{DenyCache, MemoryStore};
///
/// let settings = DenyCache::builder().cap(Duration::from_millis(500)).capacity(10_000);
/// assert!(settings.build(MemoryStore::new()).is_ok());
/// ```
#[must_use]
pub struct DenyCacheBuilder {
    cap: Duration,
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl DenyCache<()> {
    /// Returns settings to put a cache around a store with: a cap of 1 s, and 100,000 refusals.
    pub fn builder() -> DenyCacheBuilder {
        DenyCacheBuilder::new()
    }
}

impl<S> DenyCache<S> {
    /// Puts a cache with the default settings around a store.
    ///
    /// # Panics
    ///
    /// Never: the default settings are valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{DenyCache, MemoryStore};
    ///
    /// let store = DenyCache::new(MemoryStore::new());
    /// assert!(store.is_empty());
    /// ```
    pub fn new(inner: S) -> Self {
        DenyCacheBuilder::new().build(inner).expect("the default settings are valid")
    }

    /// Returns the store inside. What is settled or reset through it directly is seen here within the cap.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns how many requests were refused without calling the inner store, by all clones together.
    pub fn answered(&self) -> u64 {
        self.refusals.answered()
    }

    /// Returns how many refusals are kept, outlived ones that were not yet dropped included.
    pub fn len(&self) -> usize {
        self.refusals.len()
    }

    /// Returns whether no refusal is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DenyCacheBuilder {
    /// Returns the default settings, on the system's clock.
    pub(crate) fn new() -> Self {
        Self { cap: DEFAULT_CAP, capacity: DEFAULT_CAPACITY, clock: Box::new(SystemClock::new()) }
    }

    /// Sets how long a refusal is cached at most, instead of 1 s, counted from when the inner store was called.
    ///
    /// So late may be seen what is refunded elsewhere. A shorter wait of the refusal itself ends it earlier. A cap
    /// below 1 µs is refused by [`build`](Self::build).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{DenyCache, MemoryStore};
    ///
    /// assert!(DenyCache::builder().cap(Duration::from_millis(200)).build(MemoryStore::new()).is_ok());
    /// assert!(DenyCache::builder().cap(Duration::ZERO).build(MemoryStore::new()).is_err());
    /// ```
    pub fn cap(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// Sets how many refusals are kept at most, instead of 100,000; 0 is refused by [`build`](Self::build).
    ///
    /// Each takes 600 bytes at most, where its table has just been doubled. While all are live, further refusals are
    /// not cached, and their requests reach the inner store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{DenyCache, MemoryStore};
    ///
    /// assert!(DenyCache::builder().capacity(1_000).build(MemoryStore::new()).is_ok());
    /// assert!(DenyCache::builder().capacity(0).build(MemoryStore::new()).is_err());
    /// ```
    pub fn capacity(self, refusals: usize) -> Self {
        Self { capacity: refusals, ..self }
    }

    /// Takes the time by which refusals end from another clock, instead of the system's. It should run as fast as the
    /// inner store's; one that steps back ends what was learnt after the time it shows.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Puts the cache around a store.
    ///
    /// # Errors
    ///
    /// If the cap is less than 1 µs or the capacity is zero.
    pub fn build<S>(self, inner: S) -> Result<DenyCache<S>, Error> {
        let refusals = Arc::new(self.refusals(StoreId::new())?);
        Ok(DenyCache { inner, refusals })
    }

    /// Builds the cached refusals of the store `id` alone, for a store that calls them itself.
    pub(crate) fn refusals(self, id: StoreId) -> Result<Refusals, Error> {
        if self.cap < Duration::from_micros(1) {
            return Err(Error::invalid(
                "a deny cache with a cap of 0 remembers nothing: give at least 1us, or leave it out",
            ));
        }
        if self.capacity == 0 {
            return Err(Error::invalid(
                "a deny cache of 0 refusals remembers nothing: give at least 1, or leave it out",
            ));
        }
        Ok(Refusals::new(id, self.cap, self.capacity, self.clock))
    }
}

impl<S: Store> Store for DenyCache<S> {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        match self.refusals.ask(checks) {
            Asked::Refused(decided) => Answer::Ready(Ok(decided)),
            Asked::Open(question) => self.learn(question, checks, self.inner.decide(checks, deadline)),
        }
    }

    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.learn(self.refusals.question(checks), checks, self.inner.probe(checks, deadline))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        for (taken, _) in changes.iter().filter_map(|settlement| settlement.of(&receipt)) {
            self.refusals.settled(&taken.counter);
        }
        self.inner.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        self.forget_while(counter, || self.inner.adjust(counter, change))
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        self.forget_while(counter, || self.inner.reset(counter))
    }

    fn budget(&self) -> Option<Duration> {
        self.inner.budget()
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.refusals.recall(checks).or_else(|| self.inner.recall(checks))
    }

    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        self.inner.supports(requirements)
    }
}

impl<S> DenyCache<S> {
    /// Learns from an answer of the inner store.
    ///
    /// The decision is returned as it is. One that is still pending is learnt from when it is polled to its end; a
    /// caller that drops it learns nothing.
    fn learn(
        &self,
        question: Question,
        checks: &[Check],
        answer: Answer<Result<Decided, Error>>,
    ) -> Answer<Result<Decided, Error>> {
        match answer {
            Answer::Ready(decided) => {
                if let Ok(decided) = &decided {
                    self.refusals.learn(&question, checks, &decided.decision);
                }
                Answer::Ready(decided)
            }
            Answer::Pending(pending) => {
                let (refusals, checks) = (Arc::clone(&self.refusals), checks.to_vec());
                Answer::pending(async move {
                    let decided = pending.await?;
                    refusals.learn(&question, &checks, &decided.decision);
                    Ok(decided)
                })
            }
        }
    }

    /// Forgets a counter before and after a change to it.
    ///
    /// Before, as the change may arrive at any time from now on; and after, for what was asked for meanwhile.
    /// Dropping the pending answer forgets the second time, too.
    fn forget_while<T: 'static>(
        &self,
        counter: &Counter,
        change: impl FnOnce() -> Answer<Result<T, Error>>,
    ) -> Answer<Result<T, Error>> {
        let forgetting = self.refusals.forgetting(counter);
        match change() {
            Answer::Ready(done) => Answer::Ready(done),
            Answer::Pending(pending) => Answer::pending(async move {
                let _forgetting = forgetting;
                pending.await
            }),
        }
    }
}

impl fmt::Debug for DenyCacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheBuilder")
            .field("cap", &self.cap)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
