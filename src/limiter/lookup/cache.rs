//! Cached lookups: one in flight for each key, a fixed number of all, each with a timeout.

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

/// How long a failed lookup is cached: a database should be queried again soon, but not by each request.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// How long an empty result is cached, unless results are cached for less: a client that signs up should not wait for
/// long.
const NOTHING_FOR: Duration = Duration::from_secs(10);

/// How long a request waits for a fresh result that has one which has expired.
const LATE: Duration = Duration::from_millis(10);

/// How long after its timeout a lookup in flight is abandoned: its runtime stands still.
const GRACE: Duration = Duration::from_secs(1);

type Found<V> = Result<V, Box<dyn StdError + Send + Sync>>;
type Look<V> = dyn Fn(Lookup) -> Pin<Box<dyn Future<Output = Found<V>> + Send>> + Send + Sync;

/// The result of a lookup, shared by all requests that wait for it.
type SharedResult<V> = Result<V, Arc<Error>>;

/// What a lookup returns.
pub(crate) trait Looked: Clone + Send + Sync + 'static {
    /// Returns whether it is empty, which is cached for a shorter time.
    fn is_nothing(&self) -> bool;
}

/// A function that looks something up by a key, with its cache and its lookups in flight. Clones share all of them.
#[derive(Clone)]
pub(crate) struct Lookups<V> {
    look: Arc<Look<V>>,
    state: Arc<State<V>>,
}

struct State<V> {
    settings: Settings,
    results: Cache<Key, Cached<V>>,
    /// Until when the stale result of a key is used at once, as its lookup in flight is late. It is apart from the results,
    /// so that a note takes the place of none.
    late: Cache<Key, Instant>,
    /// A permit for each lookup that may be in flight.
    in_flight: Semaphore,
    /// Limits how often `lookups_full` is logged.
    full: Lines,
    /// Limits how often `lookup_failed` is logged.
    failed: Lines,
}

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// How many keys are cached.
    pub(crate) capacity: u64,
    /// How long a result is cached.
    pub(crate) lifetime: Duration,
    /// How long one lookup may take.
    pub(crate) timeout: Duration,
    /// How many lookups may be in flight; 0 is taken as 1.
    pub(crate) in_flight: usize,
}

#[derive(Clone)]
struct Cached<V> {
    result: SharedResult<V>,
    /// When a request looks it up again. The cache does not know it, as its clock cannot be set.
    expires: Instant,
    /// Until when it is used if the lookup is late or fails.
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
            Box::pin(async move { found.await.map_err(Into::into) }) as Pin<Box<dyn Future<Output = Found<V>> + Send>>
        };
        let (lifetime, timeout) = (Duration::from_secs(60), Duration::from_secs(1));
        let settings = Settings { capacity: 10_000, lifetime, timeout, in_flight: 256 };
        Self { look: Arc::new(look), state: State::new(settings) }
    }

    /// Returns the same function with other settings, and an empty cache.
    pub(crate) fn with(self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.state.settings;
        set(&mut settings);
        // moka refuses more than 1,000 years.
        settings.lifetime = settings.lifetime.min(Duration::from_secs(365 * 86_400));
        settings.in_flight = settings.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Self { look: self.look, state: State::new(settings) }
    }

    /// Returns the result of a key's lookup, at once if it is cached.
    ///
    /// Otherwise the lookup starts when the answer is first polled, and then continues, and is cached, whether or not
    /// it is polled again. Outside of a runtime the function is called directly, for this request alone.
    pub(crate) fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> MaybeFuture<Result<V, Error>> {
        let stale = match now(self.state.results.get(key)) {
            Some(cached) if !cached.has_expired() => return MaybeFuture::Ready(unshared(cached.result)),
            cached => cached.filter(Cached::is_usable),
        };
        let is_late = || now(self.state.late.get(key)).is_some_and(|until| Instant::now() < until);
        if let Some(stale) = stale.as_ref().filter(|_| is_late()) {
            return MaybeFuture::Ready(unshared(stale.result.clone()));
        }
        let (lookups, wanted) = (self.clone(), Lookup::new(key, &offered()));
        MaybeFuture::pending(async move { unshared(lookups.wait(wanted, stale).await) })
    }

    async fn wait(self, wanted: Lookup, stale: Option<Cached<V>>) -> SharedResult<V> {
        let Ok(runtime) = Runtime::try_current() else {
            return (self.look)(wanted).await.map_err(|error| self.state.failure(error));
        };
        let (of, lookups) = (wanted.key().clone(), self.clone());
        // A task, because the cache drops the lookup of a request that is cancelled, and starts it again for the next one.
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

    /// Returns the result that is cached by now, or that of the lookup in flight, or of a new one.
    async fn fresh(self, wanted: Lookup, stale: Option<Cached<V>>) -> SharedResult<V> {
        let (key, again) = (wanted.key().clone(), wanted.clone());
        let entry = self.state.results.entry(key.clone());
        let shared = entry.or_insert_with_if(self.look(wanted, stale.clone()), Cached::has_expired);
        if let Ok(found) = timeout(self.state.settings.timeout.saturating_add(GRACE), shared).await {
            self.state.late.invalidate(&key).await;
            return found.into_value().result;
        }
        // The runtime of the one in flight stands still.
        let found = self.look(again, stale).await;
        self.state.results.insert(key, found.clone()).await;
        found.result
    }

    /// Calls the application's function; a stale result is returned instead of an error.
    async fn look(&self, wanted: Lookup, stale: Option<Cached<V>>) -> Cached<V> {
        let State { settings, in_flight, .. } = &*self.state;
        let Ok(_permit) = in_flight.try_acquire() else {
            return stale.unwrap_or_else(|| Cached::new(Err(self.state.full()), Duration::ZERO));
        };
        let look = Arc::clone(&self.look);
        // A task, because a panic is a failure of the lookup, and the cache would call the function for the next request.
        let found = tokio::spawn(timeout(settings.timeout, async move { look(wanted).await })).await;
        let failure = match found {
            Ok(Ok(Ok(found))) => {
                let most = if found.is_nothing() { NOTHING_FOR } else { Duration::MAX };
                return Cached::new(Ok(found), settings.lifetime.min(most));
            }
            Ok(Ok(Err(error))) => self.state.failure(error),
            Ok(Err(late)) => self.state.late(late),
            Err(_) => self.state.failure("the function that looks up panicked".into()),
        };
        stale.map_or_else(|| Cached::new(Err(failure), FAILED_FOR), Cached::postponed)
    }
}

impl<V: Looked> State<V> {
    fn new(settings: Settings) -> Arc<Self> {
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

impl<V> Cached<V> {
    fn new(result: SharedResult<V>, lifetime: Duration) -> Self {
        let expires = Instant::now() + lifetime;
        Self { result, expires, stale_until: expires + lifetime }
    }

    /// Returns a stale result that is not looked up again for a while, but used no longer than it may be.
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
