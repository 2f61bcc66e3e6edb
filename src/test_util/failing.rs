//! A store that fails, hangs and works again, as a test says.

use std::fmt;
use std::future::pending;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::core::Error;
use crate::store::{
    Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Requirement, Settlement, Settling, Store,
};

/// How long a settlement, a change or a reset hangs if the inner store has no budget.
const DEFAULT_BUDGET: Duration = Duration::from_millis(100);

/// A store around a store that a test makes unavailable, and available again. Clones share the inner store and its state.
///
/// It works at first. Each call has the result of the state at the time it is made: none is repeated or resumed later.
///
/// # Examples
///
/// ```
/// use tollgate::test_util::FailingStore;
/// use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, Quota, Rule, Source};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = FailingStore::new(MemoryStore::new());
/// let rule = Rule::new("mail", Quota::per_hour(100));
/// let limiter = Limiter::new(store.clone(), [rule]).on_failure(OnFailure::Deny);
///
/// let ada = Key::new("user", "ada");
/// assert_eq!(limiter.check(&ada).await?.source(), Source::Store);
/// store.fail_with(|| Error::timeout("the store is slow"));
/// assert!(limiter.check(&ada).await.is_err_and(|error| error.is_timeout()));
/// store.work();
/// assert_eq!(limiter.check(&ada).await?.source(), Source::Store);
/// # Ok(())
/// # }
/// ```
pub struct FailingStore<S> {
    inner: Arc<S>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone)]
enum State {
    Works,
    Hangs,
    Fails(Arc<dyn Fn() -> Error + Send + Sync>),
}

impl<S: Store> FailingStore<S> {
    /// A store that works, as `inner` does.
    pub fn new(inner: S) -> Self {
        Self { inner: Arc::new(inner), state: Arc::new(Mutex::new(State::Works)) }
    }

    /// Passes all calls from now on to the inner store.
    ///
    /// A circuit breaker that has opened meanwhile closes with its next successful probe, so for a moment requests may
    /// still be decided without the store.
    pub fn work(&self) {
        self.set(State::Works);
    }

    /// Fails all calls from now on at once, with an error that is a [connection](Error::is_connection)'s.
    pub fn fail(&self) {
        self.fail_with(|| Error::connection("the store is unavailable", std::io::Error::other("a test made it fail")));
    }

    /// Fails all calls from now on at once, with the error that a closure makes for each: of
    /// [`Error::connection`], [`Error::timeout`], [`Error::store`] or [`Error::invalid`].
    pub fn fail_with(&self, error: impl Fn() -> Error + Send + Sync + 'static) {
        self.set(State::Fails(Arc::new(error)));
    }

    /// Lets all calls from now on hang.
    ///
    /// If the inner store has a [budget](Store::budget), a decision fails with a timeout at its end, or at the deadline if
    /// that is earlier. Otherwise it never ends, so a layer's own timer ends it. Settlements, changes and resets fail after
    /// that budget, or after 100 ms.
    pub fn hang(&self) {
        self.set(State::Hangs);
    }

    fn set(&self, state: State) {
        let before = mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), state);
        // Unlocked: what the closure of a test owns may call this store when it is dropped.
        drop(before);
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls the inner store if it works; otherwise returns an error, or what `hang` does.
    fn call<T>(
        &self,
        works: impl FnOnce(&S) -> Answer<Result<T, Error>>,
        hang: impl FnOnce() -> Answer<Result<T, Error>>,
    ) -> Answer<Result<T, Error>> {
        match self.state() {
            State::Works => works(&self.inner),
            State::Hangs => hang(),
            State::Fails(error) => Answer::Ready(Err(error())),
        }
    }

    /// Hangs until a decision has to be there, if the store is one that keeps deadlines.
    fn hang_until(&self, deadline: Deadline) -> Answer<Result<Decided, Error>> {
        match self.budget() {
            Some(budget) => timed_out(deadline.earlier(Deadline::after(budget))),
            None => Answer::pending(pending()),
        }
    }

    /// Hangs for as long as whatever is not a decision may take.
    fn hang_for_budget<T: Send + 'static>(&self) -> Answer<Result<T, Error>> {
        timed_out(Deadline::after(self.budget().unwrap_or(DEFAULT_BUDGET)))
    }
}

/// Returns the answer of a store that fails at a deadline; without one it never ends.
fn timed_out<T: Send + 'static>(deadline: Deadline) -> Answer<Result<T, Error>> {
    let at: Option<Instant> = deadline.instant();
    Answer::pending(async move {
        match at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
        Err(Error::timeout("the store hangs, as a test made it"))
    })
}

impl<S: Store> Store for FailingStore<S> {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.call(|inner| inner.decide(checks, deadline), || self.hang_until(deadline))
    }

    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.call(|inner| inner.probe(checks, deadline), || self.hang_until(deadline))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.call(|inner| inner.settle(receipt, changes), || self.hang_for_budget())
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        self.call(|inner| inner.adjust(counter, change), || self.hang_for_budget())
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        self.call(|inner| inner.reset(counter), || self.hang_for_budget())
    }

    fn budget(&self) -> Option<Duration> {
        self.inner.budget()
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        match self.state() {
            State::Works => self.inner.recall(checks),
            State::Hangs | State::Fails(_) => None,
        }
    }

    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        self.inner.supports(requirements)
    }
}

impl<S> Clone for FailingStore<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), state: Arc::clone(&self.state) }
    }
}

impl<S: fmt::Debug> fmt::Debug for FailingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailingStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
