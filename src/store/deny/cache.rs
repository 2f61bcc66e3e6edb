use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::refusals::Refusals;
use crate::core::error::built;
use crate::core::{Checks, Error, kept};
use crate::store::clock::{Clock, SystemClock};
use crate::store::{
    Ask, AskMode, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement, Settlement,
    Settling, Store, StoreDecision, StoreId,
};

const DEFAULT_CAP: Duration = Duration::from_secs(1);
const DEFAULT_CAPACITY: usize = 100_000;

/// A store that caches another store's denials, so that a flood of denied requests costs the inner store nothing.
///
/// A [`RedisStore`](crate::RedisStore) has one built in. After the inner store denied a check, the same check is denied
/// without calling it for as long as the denial lasts, and for at most 1 s (the [cap](DenyCacheBuilder::max_ttl)),
/// counted from the call of the inner store. The same check is the same cost from the same counter under the same
/// quota. A larger cost is denied as well, unless the algorithm is a sliding one. Then only the store knows how long
/// another cost has to wait, so the store is called once for each cost. Nothing is ever allowed from the cache.
///
/// Effects for callers:
///
/// - [`Decision::source`](crate::Decision::source) is [`DenyCache`](crate::Source::DenyCache). `retry_after` counts
///   down to the time at which, according to the store, the request fits. With several policies, `retry_after` is the
///   longest cached one. `remaining` is the value in the cached denial.
/// - Policies without a cached denial of the request have a `remaining` of 0.
/// - A refund, charge or reset through this store takes effect at once. The cap bounds the delay of changes made
///   elsewhere, of counters lost by the store itself, and of changes that no caller waits for and that take longer than
///   100 ms to arrive.
/// - A changed quota takes effect at once, because a denial belongs to one quota.
/// - Denials that are strikes of a [ban](crate::Ban) are made by the inner store, until the key is banned. A ban that
///   denials extend is cached for half of its remaining time, so that requests which continue reach the inner store
///   before it ends.
///
/// While a request is denied from the cache, its other checks are not strikes of their bans, because the store is not
/// called.
///
/// Never denied from the cache are peeks (cost 0) unless the layer [asks](crate::store::AskMode::Cached) for it, checks
/// [settled by outcome](crate::store::Settles), and requests with a check in [shadow mode](crate::store::Mode) or with
/// two checks of one counter.
///
/// Memory is bounded: by default 100,000 denials are cached, in 15 MB at most, however long the keys are and however
/// many policies there are. While all of them are live, further denials are not cached. A counter is identified by 84
/// bits of a hash that no client can predict, as in a [`MemoryStore`](crate::MemoryStore). Clones share the cache.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::DenyCache;
/// use tollgate::MemoryStore;
///
/// let store = DenyCache::builder(MemoryStore::new()).max_ttl(Duration::from_millis(200)).build();
/// assert_eq!(store.denied_from_cache(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct DenyCache<S> {
    inner: S,
    refusals: Arc<Refusals>,
}

/// Settings of a [`DenyCache`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::DenyCache;
/// use tollgate::MemoryStore;
///
/// let store = DenyCache::builder(MemoryStore::new()).max_ttl(Duration::from_millis(500)).capacity(10_000).build();
/// assert!(store.is_empty());
/// ```
#[must_use]
pub struct DenyCacheBuilder<S> {
    inner: S,
    cap: Duration,
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl<S> DenyCache<S> {
    /// Wraps a store in a cache with the default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::DenyCache;
    /// use tollgate::MemoryStore;
    ///
    /// let store = DenyCache::new(MemoryStore::new());
    /// assert!(store.is_empty());
    /// ```
    pub fn new(inner: S) -> Self {
        Self::builder(inner).build()
    }

    /// Returns a builder of a cache for a store. Defaults: a cap of 1 s, and 100,000 denials.
    pub fn builder(inner: S) -> DenyCacheBuilder<S> {
        let clock = Box::new(SystemClock::new());
        DenyCacheBuilder { inner, cap: DEFAULT_CAP, capacity: DEFAULT_CAPACITY, clock }
    }

    pub(crate) fn around(inner: S, refusals: Arc<Refusals>) -> Self {
        Self { inner, refusals }
    }

    /// Returns the inner store. Changes made through it directly take effect here within the cap.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the number of requests denied without calling the inner store, by all clones.
    pub fn denied_from_cache(&self) -> u64 {
        self.refusals.from_cache.load(Ordering::Relaxed)
    }

    /// Returns the number of cached denials, including expired ones that were not dropped yet.
    pub fn len(&self) -> usize {
        self.refusals.shards.each().map(|part| part.len()).sum()
    }

    /// Returns `true` if no denial is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S> DenyCacheBuilder<S> {
    /// Sets the maximum time for which a denial is cached, instead of 1 s, counted from the call of the inner store.
    ///
    /// A refund made elsewhere takes effect within this time. A shorter wait of the denial itself ends it earlier. It
    /// is at least 1 µs.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::store::DenyCache;
    /// use tollgate::MemoryStore;
    ///
    /// assert!(DenyCache::builder(MemoryStore::new()).max_ttl(Duration::from_millis(200)).try_build().is_ok());
    /// assert!(DenyCache::builder(MemoryStore::new()).max_ttl(Duration::ZERO).try_build().is_err());
    /// ```
    pub fn max_ttl(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// Sets the maximum number of cached denials, instead of 100,000: at least 1.
    ///
    /// Each takes 250 bytes at most, where its table has just been doubled. While all are live, further denials are not
    /// cached, and their requests reach the inner store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::DenyCache;
    /// use tollgate::MemoryStore;
    ///
    /// assert!(DenyCache::builder(MemoryStore::new()).capacity(1_000).try_build().is_ok());
    /// assert!(DenyCache::builder(MemoryStore::new()).capacity(0).try_build().is_err());
    /// ```
    pub fn capacity(self, refusals: usize) -> Self {
        Self { capacity: refusals, ..self }
    }

    /// Sets the clock by which denials expire, instead of the system's.
    ///
    /// It should run as fast as the inner store's. If it steps back, denials from after its new time are dropped.
    /// Denials of counters that were changed after the new time are not cached until then.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Wraps the store in the cache.
    ///
    /// # Panics
    ///
    /// If the cap is less than 1 µs or the capacity is zero.
    #[track_caller]
    pub fn build(self) -> DenyCache<S> {
        built(self.try_build())
    }

    /// Fallible version of [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// If the cap is less than 1 µs or the capacity is zero.
    pub fn try_build(self) -> Result<DenyCache<S>, Error> {
        let (inner, refusals) = self.refusals(StoreId::new())?;
        Ok(DenyCache::around(inner, Arc::new(refusals)))
    }

    pub(crate) fn refusals(self, id: StoreId) -> Result<(S, Refusals), Error> {
        if self.cap < Duration::from_micros(1) {
            return Err(Error::invalid("a deny cache with a max_ttl of 0 caches nothing: it must be at least 1us"));
        }
        if self.capacity == 0 {
            return Err(Error::invalid("a deny cache of 0 refusals caches nothing: at least 1 is needed"));
        }
        Ok((self.inner, Refusals::new(id, self.cap, self.capacity, self.clock)))
    }
}

impl<S: Store> Store for DenyCache<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.decide_by(checks, ask.mode, |inner| match inner.decide(checks, ask) {
            MaybeFuture::Ready(decided) => Called::Ready(decided),
            MaybeFuture::Pending(pending) => Called::Pending(PendingCall { pending, checks: kept(checks) }),
        })
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.items().is_empty() {
            // An empty receipt may be of a cached denial, which the inner store does not know.
            return MaybeFuture::Ready(Ok(changes.iter().map(|settlement| settlement.nothing(&receipt)).collect()));
        }
        let taken = changes.iter().filter_map(|settlement| settlement.bounded(&receipt));
        let counters: SmallVec<[(Counter, Change); 1]> =
            taken.map(|(taken, change)| (taken.counter.clone(), change)).collect();
        let refusals = Arc::clone(&self.refusals);
        let forget = move || counters.iter().for_each(|(counter, change)| refusals.changed(counter, *change));
        forget();
        // Again afterwards, for calls made during the settlement.
        self.inner.settle(receipt, changes).map(move |applied| {
            forget();
            applied
        })
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.refusals.changed(counter, change);
        // Again afterwards, for calls made during the adjustment.
        let (refusals, changed) = (Arc::clone(&self.refusals), counter.clone());
        self.inner.adjust(counter, change).map(move |applied| {
            refusals.changed(&changed, change);
            applied
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

#[allow(clippy::large_enum_variant, reason = "a decision that is ready allocates nothing")]
pub(crate) enum Called<F> {
    Ready(Result<StoreDecision, Error>),
    Pending(F),
}

struct PendingCall {
    pending: Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>,
    checks: Checks,
}

impl Future for PendingCall {
    type Output = Result<StoreDecision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.as_mut().poll(cx)
    }
}

impl AsRef<[Check]> for PendingCall {
    fn as_ref(&self) -> &[Check] {
        &self.checks
    }
}

impl<S> DenyCache<S> {
    /// The call, which keeps its checks, and its recording are one boxed future. If it is dropped early, nothing is recorded.
    pub(crate) fn decide_by<F>(
        &self,
        checks: &[Check],
        mode: AskMode,
        call: impl FnOnce(&S) -> Called<F>,
    ) -> MaybeFuture<Result<StoreDecision, Error>>
    where
        F: Future<Output = Result<StoreDecision, Error>> + AsRef<[Check]> + Send + Unpin + 'static,
    {
        let mut snapshot = self.refusals.snapshot(checks);
        if let Some(refused) = self.refusals.refusal(&snapshot, checks, mode) {
            return MaybeFuture::Ready(Ok(refused));
        }
        let refusals = &self.refusals;
        match call(&self.inner) {
            Called::Ready(decided) => {
                refusals.record(&mut snapshot, checks, &decided);
                MaybeFuture::Ready(decided)
            }
            Called::Pending(mut call) => {
                let refusals = Arc::clone(refusals);
                MaybeFuture::pending(poll_fn(move |cx| {
                    // A decision is large, so it is not moved.
                    let polled = Pin::new(&mut call).poll(cx);
                    if let Poll::Ready(decided) = &polled {
                        refusals.record(&mut snapshot, call.as_ref(), decided);
                    }
                    polled
                }))
            }
        }
    }
}

impl<S> fmt::Debug for DenyCacheBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheBuilder")
            .field("cap", &self.cap)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
