//! Runs lookups: one for all requests with the same key, as a task of the runtime, with a timeout.
//!
//! A lookup is a task of its own, so that it continues, and is cached, if the requests that wait for it are cancelled.
//! It starts when a request first polls for it. A panic of the application's function is a failed lookup.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::flight::{Flights, Joined, Receiver};
use super::memory::{Looked, Memory, SharedResult};
use super::settings::Settings;
use super::{Lookup, RawValues};
use crate::core::error::{Kind, chain};
use crate::core::{Answer, Error, Key, Lines};

type Found<V> = Result<V, Box<dyn StdError + Send + Sync>>;
type Look<V> = dyn Fn(Lookup) -> Pin<Box<dyn Future<Output = Found<V>> + Send>> + Send + Sync;

/// A function that looks something up by a key, with its cache and its lookups in flight. Clones share all of them.
///
/// The setters make lookups of their own, with an empty cache: they are for building, before the first lookup.
pub(crate) struct Lookups<V> {
    look: Arc<Look<V>>,
    state: Arc<State<V>>,
}

/// What clones share.
struct State<V> {
    settings: Settings,
    memory: Memory<V>,
    flights: Flights<V>,
    /// Limits how often `lookups_full` is logged.
    full: Lines,
    /// Limits how often `lookup_failed` is logged.
    failed: Lines,
}

impl<V: Looked> Lookups<V> {
    /// Creates lookups by a function, with an empty cache and the default settings.
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
        Self { look: Arc::new(look), state: State::new(Settings::default()) }
    }

    /// Sets how many keys are cached.
    pub(crate) fn capacity(self, keys: u64) -> Self {
        self.with(|settings| settings.capacity = keys)
    }

    /// Sets how long a result is cached, at most a year.
    pub(crate) fn lifetime(self, lifetime: Duration) -> Self {
        // moka refuses more than 1,000 years.
        self.with(|settings| settings.lifetime = lifetime.min(Duration::from_secs(365 * 86_400)))
    }

    /// Sets how long one lookup may take.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = timeout)
    }

    /// Sets how many lookups may be in flight; 0 is taken as 1.
    pub(crate) fn in_flight(self, lookups: usize) -> Self {
        self.with(|settings| settings.in_flight = lookups.max(1))
    }

    /// Returns the result of a key's lookup, at once if it is cached.
    ///
    /// Otherwise the lookup starts when the answer is first polled, and then continues whether or not it is polled
    /// again.
    pub(crate) fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> Answer<Result<V, Error>> {
        if let Some(cached) = self.state.memory.get(key) {
            return Answer::Ready(unshared(cached));
        }
        let (lookups, wanted) = (self.clone(), Lookup::new(key, &offered()));
        Answer::pending(async move { unshared(lookups.wait(wanted).await) })
    }

    /// Waits for the lookup of a key, and starts it if there is none in flight.
    ///
    /// Outside of a runtime the function is called directly, for this request alone and without a timeout; its result
    /// is not cached.
    ///
    /// # Errors
    ///
    /// If the function failed, panicked or timed out, if too many lookups are in flight, or if the runtime of the
    /// lookup ended, twice.
    ///
    /// # Cancellation
    ///
    /// A lookup that was started continues, and its result is cached.
    async fn wait(&self, wanted: Lookup) -> SharedResult<V> {
        let Ok(runtime) = Runtime::try_current() else {
            // No task could go on with it, and there are no timers.
            return (self.look)(wanted).await.map_err(|error| self.state.failure(error));
        };
        // A flight ends with its runtime, which may be another one: then a second one is made on this runtime.
        for _ in 0..2 {
            let mut receiver = match self.join(&runtime, &wanted) {
                Ok(receiver) => receiver,
                Err(result) => return result,
            };
            if let Ok(result) = receiver.wait_for(Option::is_some).await {
                return result.clone().expect("it was waited for");
            }
        }
        Err(Arc::new(Error::new(Kind::Store, "the lookup was cancelled, as the runtime it ran on has ended")))
    }

    /// Joins the flight of a key, or starts it as a task; or returns the result, if there is no need to wait.
    fn join(&self, runtime: &Runtime, wanted: &Lookup) -> Result<Receiver<V>, SharedResult<V>> {
        let (state, key) = (&self.state, wanted.key());
        match state.flights.join(key, state.settings.timeout, || state.memory.get(key)) {
            Joined::Cached(result) => Err(result),
            Joined::Waits(receiver) => Ok(receiver),
            Joined::Starts(number, sender, receiver) => {
                let flight = InFlight { state: Arc::clone(state), key: key.clone(), number, sender, is_over: false };
                runtime.spawn(self.clone().look(wanted.clone(), flight));
                // The latest task may wait for this worker, which may go on with a handler that blocks. Other
                // workers can steal the one before it.
                runtime.spawn(async {});
                Ok(receiver)
            }
            Joined::Full => Err(Err(Arc::new(state.full()))),
        }
    }

    /// Runs the application's function with a timeout.
    async fn look(self, wanted: Lookup, flight: InFlight<V>) {
        let limit = self.state.settings.timeout;
        let found = timeout(limit, async { (self.look)(wanted).await }).await;
        flight.finish(found.unwrap_or_else(|late| Err(late.into())).map_err(|error| self.state.failure(error)));
    }

    /// Returns the same function with other settings, and an empty cache.
    fn with(self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.state.settings;
        set(&mut settings);
        Self { look: self.look, state: State::new(settings) }
    }
}

impl<V: Looked> State<V> {
    fn new(settings: Settings) -> Arc<Self> {
        let (memory, flights) = (Memory::new(settings), Flights::new(settings.in_flight));
        Arc::new(Self { settings, memory, flights, full: Lines::new(), failed: Lines::new() })
    }

    /// Logs and returns that too many lookups are in flight.
    fn full(&self) -> Error {
        let most = self.settings.in_flight;
        self.full.log("", |more| {
            tracing::warn!(code = "lookups_full", most, more, "too many lookups are in flight: a request gets none");
        });
        Error::new(Kind::Store, format!("{most} lookups are in flight, and no more are allowed: see in_flight"))
    }

    /// Logs and returns the failure of a lookup: a timeout, or an error whose source is the application's.
    fn failure(&self, error: Box<dyn StdError + Send + Sync>) -> Arc<Error> {
        self.failed.log("", |more| {
            tracing::warn!(code = "lookup_failed", error = chain(&*error), more, "a lookup failed");
        });
        let kind = if error.is::<tokio::time::error::Elapsed>() { Kind::Timeout } else { Kind::Store };
        Arc::new(Error::new(kind, "a lookup failed").with_source(error))
    }
}

/// A lookup in flight. When it is dropped, the flight has ended: with a result, by a panic, or with its runtime.
struct InFlight<V: Looked> {
    state: Arc<State<V>>,
    key: Key,
    number: u64,
    sender: watch::Sender<Option<SharedResult<V>>>,
    /// Whether there is a result.
    is_over: bool,
}

impl<V: Looked> InFlight<V> {
    fn finish(mut self, result: SharedResult<V>) {
        self.publish(result);
    }

    /// Caches the result before the flight ends, so that a request that misses the flight hits the cache.
    fn publish(&mut self, result: SharedResult<V>) {
        self.is_over = true;
        self.state.memory.put(self.key.clone(), result.clone());
        self.sender.send_replace(Some(result));
    }
}

impl<V: Looked> Drop for InFlight<V> {
    fn drop(&mut self) {
        if !self.is_over && std::thread::panicking() {
            let failure = self.state.failure("the function that looks up panicked".into());
            self.publish(Err(failure));
        }
        self.state.flights.end(&self.key, self.number);
    }
}

/// Returns a result for one of the requests that share it.
fn unshared<V>(result: SharedResult<V>) -> Result<V, Error> {
    result.map_err(|error| error.shared())
}

impl<V> Clone for Lookups<V> {
    fn clone(&self) -> Self {
        Self { look: Arc::clone(&self.look), state: Arc::clone(&self.state) }
    }
}
