//! Cached lookups: one in flight for each key, a bounded number in all, each with a timeout.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use moka::future::Cache;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use super::{Lookup, RawValues};
use crate::core::error::{Kind, chain};
use crate::core::{Error, Key, Lines, MaybeFuture};

/// TTL of failures: a database should be queried again soon, but not by each request.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// TTL of empty results, unless results have a shorter one: a client that signs up should not wait for long.
const NOTHING_FOR: Duration = Duration::from_secs(10);

/// Wait for a fresh result if there is an expired one.
const LATE: Duration = Duration::from_millis(10);

/// Time after its timeout until a lookup in flight is abandoned, because its runtime stands still.
const GRACE: Duration = Duration::from_secs(1);

type LookupResult<V> = Result<V, Box<dyn StdError + Send + Sync>>;
type LookupFn<V> = dyn Fn(Lookup) -> Pin<Box<dyn Future<Output = LookupResult<V>> + Send>> + Send + Sync;

type SharedResult<V> = Result<V, Arc<Error>>;

pub(crate) trait Looked: Clone + Send + Sync + 'static {
    fn is_nothing(&self) -> bool;
}

/// Clones share the cache and the lookups in flight.
#[derive(Clone)]
pub(crate) struct Lookups<V> {
    look: Arc<LookupFn<V>>,
    state: Arc<LookupState<V>>,
}

struct LookupState<V> {
    settings: LookupConfig,
    results: Cache<Key, CachedResult<V>>,
    /// Until when a key's stale result is used at once. It is not in `results`, so that it evicts no result.
    late: Cache<Key, Instant>,
    in_flight: Semaphore,
    full: Lines,
    failed: Lines,
}

#[derive(Clone, Copy)]
pub(crate) struct LookupConfig {
    pub(crate) capacity: u64,
    pub(crate) lifetime: Duration,
    pub(crate) timeout: Duration,
    /// 0 is taken as 1.
    pub(crate) in_flight: usize,
}

#[derive(Clone)]
struct CachedResult<V> {
    result: SharedResult<V>,
    /// Kept apart from the cache's own TTL, because its clock cannot be set.
    expires: Instant,
    /// Limit for use if the lookup is late or fails.
    stale_until: Instant,
}

impl<V: Looked> Lookups<V> {
    pub(crate) fn new<F, T, E>(look: F) -> Self
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let look = move |wanted| {
            let found = look(wanted);
            Box::pin(async move { found.await.map_err(Into::into) })
                as Pin<Box<dyn Future<Output = LookupResult<V>> + Send>>
        };
        let (lifetime, timeout) = (Duration::from_secs(60), Duration::from_secs(1));
        let settings = LookupConfig { capacity: 10_000, lifetime, timeout, in_flight: 256 };
        Self { look: Arc::new(look), state: LookupState::new(settings) }
    }

    /// Empties the cache.
    pub(crate) fn with(self, set: impl FnOnce(&mut LookupConfig)) -> Self {
        let mut settings = self.state.settings;
        set(&mut settings);
        // The bound is needed because moka panics above 1,000 years.
        settings.lifetime = settings.lifetime.min(Duration::from_secs(365 * 86_400));
        settings.in_flight = settings.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Self { look: self.look, state: LookupState::new(settings) }
    }

    /// Pending lookups start at the first poll, and continue even if they are not polled again. Outside of a runtime
    /// the function is called directly, for this request alone.
    pub(crate) fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> MaybeFuture<Result<V, Error>> {
        let stale = match now(self.state.results.get(key)) {
            Some(cached) if !cached.has_expired() => return MaybeFuture::Ready(unshared(cached.result)),
            cached => cached.filter(CachedResult::is_usable),
        };
        let is_late = || now(self.state.late.get(key)).is_some_and(|until| Instant::now() < until);
        if let Some(stale) = stale.as_ref().filter(|_| is_late()) {
            return MaybeFuture::Ready(unshared(stale.result.clone()));
        }
        let (lookups, wanted) = (self.clone(), Lookup::new(key, &offered()));
        MaybeFuture::pending(async move { unshared(lookups.wait(wanted, stale).await) })
    }

    async fn wait(self, wanted: Lookup, stale: Option<CachedResult<V>>) -> SharedResult<V> {
        let Ok(runtime) = Runtime::try_current() else {
            return (self.look)(wanted).await.map_err(|error| self.state.failure(error));
        };
        let (of, lookups) = (wanted.key().clone(), self.clone());
        // A task, because the cache drops the lookup of a cancelled request, and starts it again for the next one.
        let fresh = runtime.spawn(self.fresh(wanted, stale.clone()));
        let ended = |_| Err(Arc::new(Error::new(Kind::Store, "the lookup was cancelled, as its runtime has ended")));
        let fresh = async { fresh.await.unwrap_or_else(ended) };
        let Some(stale) = stale else { return fresh.await };
        if let Ok(found) = timeout(LATE, fresh).await {
            return found;
        }
        lookups.state.late.insert(of, Instant::now() + FAILED_FOR).await;
        stale.result
    }

    async fn fresh(self, wanted: Lookup, stale: Option<CachedResult<V>>) -> SharedResult<V> {
        let (key, again) = (wanted.key().clone(), wanted.clone());
        let entry = self.state.results.entry(key.clone());
        let shared = entry.or_insert_with_if(self.look(wanted, stale.clone()), CachedResult::has_expired);
        if let Ok(found) = timeout(self.state.settings.timeout.saturating_add(GRACE), shared).await {
            self.state.late.invalidate(&key).await;
            return found.into_value().result;
        }
        // Looked up here, because the runtime of the lookup in flight stands still.
        let found = self.look(again, stale).await;
        self.state.results.insert(key, found.clone()).await;
        found.result
    }

    async fn look(&self, wanted: Lookup, stale: Option<CachedResult<V>>) -> CachedResult<V> {
        let LookupState { settings, in_flight, .. } = &*self.state;
        let Ok(_permit) = in_flight.try_acquire() else {
            return stale.unwrap_or_else(|| CachedResult::new(Err(self.state.full()), Duration::ZERO));
        };
        let look = Arc::clone(&self.look);
        // A task, because a panic is a failure of the lookup. Otherwise the cache would call the function for the next
        // request.
        let found = tokio::spawn(timeout(settings.timeout, async move { look(wanted).await })).await;
        let failure = match found {
            Ok(Ok(Ok(found))) => {
                let most = if found.is_nothing() { NOTHING_FOR } else { Duration::MAX };
                return CachedResult::new(Ok(found), settings.lifetime.min(most));
            }
            Ok(Ok(Err(error))) => self.state.failure(error),
            Ok(Err(late)) => self.state.late(late),
            Err(_) => self.state.failure("the function that looks up panicked".into()),
        };
        stale.map_or_else(|| CachedResult::new(Err(failure), FAILED_FOR), CachedResult::postponed)
    }
}

impl<V: Looked> LookupState<V> {
    fn new(settings: LookupConfig) -> Arc<Self> {
        // A result is kept until it is no longer usable. When the cache is full, keys that are rarely used are evicted.
        let longest = settings.lifetime.max(FAILED_FOR) * 2;
        let results = Cache::builder().max_capacity(settings.capacity).time_to_live(longest).build();
        let late = Cache::builder().max_capacity(settings.capacity).time_to_live(2 * FAILED_FOR).build();
        let in_flight = Semaphore::new(settings.in_flight);
        Arc::new(Self { settings, results, late, in_flight, full: Lines::new(), failed: Lines::new() })
    }

    fn full(&self) -> Arc<Error> {
        let most = self.settings.in_flight;
        self.full.log("", |more| {
            tracing::warn!(code = "lookups_full", most, more, "too many lookups in flight");
        });
        Arc::new(Error::new(
            Kind::Store,
            format!("{most} lookups are in flight, and no more are allowed: see in_flight"),
        ))
    }

    fn failure(&self, error: Box<dyn StdError + Send + Sync>) -> Arc<Error> {
        self.failed.log("", |more| {
            tracing::warn!(code = "lookup_failed", error = chain(&*error), more, "a lookup failed");
        });
        Arc::new(Error::new(Kind::Store, "a lookup failed").with_source(error))
    }

    fn late(&self, late: Elapsed) -> Arc<Error> {
        let timeout = self.settings.timeout;
        self.failed.log("", |more| {
            let error = format!("it took longer than its timeout of {timeout:?}");
            tracing::warn!(code = "lookup_failed", error, more, "lookup timed out");
        });
        Arc::new(
            Error::new(Kind::Timeout, format!("a lookup took longer than its timeout of {timeout:?}"))
                .with_source(late),
        )
    }
}

impl<V> CachedResult<V> {
    fn new(result: SharedResult<V>, lifetime: Duration) -> Self {
        let expires = Instant::now() + lifetime;
        Self { result, expires, stale_until: expires + lifetime }
    }

    fn postponed(self) -> Self {
        Self { expires: (Instant::now() + FAILED_FOR).min(self.stale_until), ..self }
    }

    fn has_expired(&self) -> bool {
        self.expires <= Instant::now()
    }

    fn is_usable(&self) -> bool {
        self.result.is_ok() && Instant::now() < self.stale_until
    }
}

fn now<T>(reading: impl Future<Output = Option<T>>) -> Option<T> {
    match pin!(reading).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(cached) => cached,
        Poll::Pending => None,
    }
}

fn unshared<V>(result: SharedResult<V>) -> Result<V, Error> {
    result.map_err(|error| error.shared())
}
