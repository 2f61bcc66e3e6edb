//! Asking what may take time: once for all who want the same, on the runtime, and never for ever.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::flight::{Arrival, Boarding, Flights};
use super::memory::{Answered, Looked, Memory};
use super::settings::Settings;
use super::{Lookup, RawValues, Warning};
use crate::core::Answer;
use crate::core::error::Kind;
use crate::{Error, Key};

type Found<V> = Result<V, Box<dyn StdError + Send + Sync>>;
type Look<V> = dyn Fn(Lookup) -> Pin<Box<dyn Future<Output = Found<V>> + Send>> + Send + Sync;

/// A function that looks something up by a key, and what it said. Clones share both.
pub(crate) struct Lookups<V> {
    look: Arc<Look<V>>,
    state: Arc<State<V>>,
}

struct State<V> {
    settings: Settings,
    memory: Memory<V>,
    flights: Flights<V>,
    full: Warning,
    failed: Warning,
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
        Self { look: Arc::new(look), state: State::new(Settings::default()) }
    }

    pub(crate) fn capacity(self, keys: u64) -> Self {
        self.with(|settings| settings.capacity = keys)
    }

    pub(crate) fn lifetime(self, lifetime: Duration) -> Self {
        // moka refuses more than 1,000 years.
        self.with(|settings| settings.lifetime = lifetime.min(Duration::from_secs(365 * 86_400)))
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = timeout)
    }

    pub(crate) fn in_flight(self, lookups: usize) -> Self {
        self.with(|settings| settings.in_flight = lookups.max(1))
    }

    /// What a key's look-up says; at once if it is remembered. Else nothing is looked up before the
    /// answer is polled, and then whether it is polled again or not.
    pub(crate) fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> Answer<Result<V, Error>> {
        if let Some(known) = self.state.memory.get(key) {
            return Answer::Ready(own(known));
        }
        let (lookups, wanted) = (self.clone(), Lookup::new(key, &offered()));
        Answer::pending(async move { own(lookups.fly(wanted).await) })
    }

    /// Waits for the look-up of a key, which is started if there is none.
    async fn fly(&self, wanted: Lookup) -> Answered<V> {
        let Ok(runtime) = Runtime::try_current() else {
            // Nobody else could go on with it, and there are no timers.
            return (self.look)(wanted).await.map_err(|error| self.state.failure(error));
        };
        // A flight ends with its runtime, which may be another's: then there is one on this runtime.
        for _ in 0..2 {
            let mut arrival = match self.board(&runtime, &wanted) {
                Ok(arrival) => arrival,
                Err(answered) => return answered,
            };
            if let Ok(answered) = arrival.wait_for(Option::is_some).await {
                return answered.clone().expect("it was waited for");
            }
        }
        Err(Arc::new(Error::new(Kind::Store, "a look-up ended with the runtime it was made on")))
    }

    fn board(&self, runtime: &Runtime, wanted: &Lookup) -> Result<Arrival<V>, Answered<V>> {
        let (state, key) = (&self.state, wanted.key());
        match state.flights.board(key, state.settings.timeout, || state.memory.get(key)) {
            Boarding::Known(answered) => Err(answered),
            Boarding::Joined(arrival) => Ok(arrival),
            Boarding::Starts(number, sender, arrival) => {
                let landing = Landing { state: Arc::clone(state), key: key.clone(), number, sender, landed: false };
                runtime.spawn(self.clone().look(wanted.clone(), landing));
                // The task spawned last may wait for this worker, which may go on with a handler that
                // blocks: others can take the one before it.
                runtime.spawn(async {});
                Ok(arrival)
            }
            Boarding::Full => Err(Err(Arc::new(state.full()))),
        }
    }

    async fn look(self, wanted: Lookup, landing: Landing<V>) {
        let limit = self.state.settings.timeout;
        let found = timeout(limit, async { (self.look)(wanted).await }).await;
        landing.land(found.unwrap_or_else(|late| Err(late.into())).map_err(|error| self.state.failure(error)));
    }

    fn with(self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.state.settings;
        set(&mut settings);
        Self { look: self.look, state: State::new(settings) }
    }
}

impl<V: Looked> State<V> {
    fn new(settings: Settings) -> Arc<Self> {
        let (memory, flights) = (Memory::new(settings), Flights::new(settings.in_flight));
        Arc::new(Self { settings, memory, flights, full: Warning::default(), failed: Warning::default() })
    }

    fn full(&self) -> Error {
        let most = self.settings.in_flight;
        if self.full.is_due() {
            tracing::warn!(code = "lookups_full", most, "too many look-ups are under way: a request goes on without");
        }
        Error::new(Kind::Store, format!("{most} look-ups are under way, and no more are made at a time"))
    }

    fn failure(&self, error: Box<dyn StdError + Send + Sync>) -> Arc<Error> {
        if self.failed.is_due() {
            tracing::warn!(code = "lookup_failed", error = &*error as &dyn StdError, "a look-up failed");
        }
        let kind = if error.is::<tokio::time::error::Elapsed>() { Kind::Timeout } else { Kind::Store };
        Arc::new(Error::new(kind, "a look-up failed").with_source(error))
    }
}

/// The end of a flight, whichever it is.
struct Landing<V: Looked> {
    state: Arc<State<V>>,
    key: Key,
    number: u64,
    sender: watch::Sender<Option<Answered<V>>>,
    landed: bool,
}

impl<V: Looked> Landing<V> {
    fn land(mut self, answered: Answered<V>) {
        self.tell(answered);
    }

    /// Remembers before the flight ends, so that who does not find the one finds the other.
    fn tell(&mut self, answered: Answered<V>) {
        self.landed = true;
        self.state.memory.put(self.key.clone(), answered.clone());
        self.sender.send_replace(Some(answered));
    }
}

impl<V: Looked> Drop for Landing<V> {
    fn drop(&mut self) {
        if !self.landed && std::thread::panicking() {
            let failure = self.state.failure("it panicked".into());
            self.tell(Err(failure));
        }
        self.state.flights.end(&self.key, self.number);
    }
}

/// An answer for one of those who wait.
fn own<V>(answered: Answered<V>) -> Result<V, Error> {
    answered.map_err(|error| error.shared())
}

impl<V> Clone for Lookups<V> {
    fn clone(&self) -> Self {
        Self { look: Arc::clone(&self.look), state: Arc::clone(&self.state) }
    }
}
