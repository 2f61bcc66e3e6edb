use std::fmt;
use std::future::pending;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::core::Error;
use crate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, Deadline, MaybeFuture, Receipt, Requirement, Settlement,
    Settling, Store, StoreDecision,
};

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);

/// A wrapper store that a test makes unavailable, and available again. Clones share the inner store and the state.
///
/// It works at first. The state at the time of a call determines its result. No call is repeated later.
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
    state: Arc<Mutex<FailureState>>,
}

#[derive(Clone)]
struct FailureState {
    result: CallResult,
    answers: Answers,
}

#[derive(Clone)]
enum CallResult {
    Works,
    Hangs,
    Fails(Arc<dyn Fn() -> Error + Send + Sync>),
}

#[derive(Clone)]
enum Answers {
    AtOnce,
    After(Duration),
    /// Until it is closed: it has no permits.
    Held(Arc<Semaphore>),
}

impl<S: Store> FailingStore<S> {
    /// A store that works, as `inner` does.
    pub fn new(inner: S) -> Self {
        let state = FailureState { result: CallResult::Works, answers: Answers::AtOnce };
        Self { inner: Arc::new(inner), state: Arc::new(Mutex::new(state)) }
    }

    /// Passes all calls from now on to the inner store.
    ///
    /// An open circuit breaker closes with its next successful probe, so for a moment requests may still be decided
    /// without the store.
    pub fn work(&self) {
        self.set(CallResult::Works);
    }

    /// Fails all calls from now on immediately, with a [connection error](Error::is_connection).
    pub fn fail(&self) {
        self.fail_with(|| Error::connection("the store is unavailable", std::io::Error::other("a test made it fail")));
    }

    /// Fails all calls from now on immediately, with the error that a closure makes for each call, by
    /// [`Error::connection`], [`Error::timeout`], [`Error::store`] or [`Error::invalid`].
    pub fn fail_with(&self, error: impl Fn() -> Error + Send + Sync + 'static) {
        self.set(CallResult::Fails(Arc::new(error)));
    }

    /// Lets all calls from now on hang.
    ///
    /// If the inner store has a [timeout](crate::store::Capabilities::timeout), a decision fails with a timeout at its
    /// end, or at the deadline if that is earlier. Otherwise it never ends, so a layer's own timer ends it. Settlements
    /// and changes fail after that timeout, or after 100 ms.
    pub fn hang(&self) {
        self.set(CallResult::Hangs);
    }

    /// Delays the answers of all calls from now on, whether the store works or fails, until the next
    /// [`work`](Self::work), [`fail`](Self::fail) or [`hang`](Self::hang).
    ///
    /// The inner store is called immediately, and takes units even if the caller does not wait for the answer. If it
    /// has a [timeout](crate::store::Capabilities::timeout), a decision fails when it elapses, or at the deadline if
    /// that is earlier.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::test_util::{FailingStore, ManualClock};
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule, Source};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let clock = ManualClock::paused();
    /// let store = FailingStore::new(MemoryStore::builder().clock(clock.clone()).build());
    /// let rule = Rule::new("mail", Quota::per_hour(100));
    /// let limiter = Limiter::new(store.clone(), [rule]).timeout(Duration::from_millis(50));
    ///
    /// let ada = Key::new("user", "ada");
    /// store.delay(Duration::from_millis(20));
    /// assert_eq!(limiter.check(&ada).await?.source(), Source::Store);
    /// store.delay(Duration::from_millis(80));
    /// assert_eq!(limiter.check(&ada).await?.source(), Source::Fallback);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay(&self, by: Duration) {
        self.state().answers = Answers::After(by);
    }

    /// Holds the answers of all calls from now on, whether the store works or fails, until the next
    /// [`work`](Self::work), [`fail`](Self::fail) or [`hang`](Self::hang).
    ///
    /// The inner store is called immediately. The answers are ready when the returned value is released or dropped. It
    /// needs no timers, unless the inner store has a [timeout](crate::store::Capabilities::timeout), which bounds its
    /// decisions. Use it to test requests that are dropped while the store decides, or that overtake each other.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::FutureExt;
    /// use tollgate::test_util::FailingStore;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// let store = FailingStore::new(MemoryStore::new());
    /// let limiter = Limiter::new(store.clone(), [Rule::new("mail", Quota::per_hour(1))]);
    ///
    /// let ada = Key::new("user", "ada");
    /// let held = store.hold();
    /// let mut first = Box::pin(limiter.check(&ada));
    /// assert!(first.as_mut().now_or_never().is_none());
    /// store.work();
    /// let second = limiter.check(&ada).now_or_never().expect("its answer is not held");
    /// assert!(!second?.is_allowed());
    /// held.release();
    /// assert!(first.now_or_never().expect("it is released")?.is_allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn hold(&self) -> Held {
        let gate = Arc::new(Semaphore::new(0));
        self.state().answers = Answers::Held(Arc::clone(&gate));
        Held { gate, state: Arc::clone(&self.state) }
    }

    fn set(&self, result: CallResult) {
        let before = mem::replace(&mut *self.state(), FailureState { result, answers: Answers::AtOnce });
        // Dropped unlocked, because values that the closure of a test owns may call this store in their `Drop`.
        drop(before);
    }

    fn state(&self) -> MutexGuard<'_, FailureState> {
        locked(&self.state)
    }

    fn call<T: Send + 'static>(
        &self,
        [slow, hanging]: [Option<Instant>; 2],
        works: impl FnOnce(&S) -> MaybeFuture<Result<T, Error>>,
    ) -> MaybeFuture<Result<T, Error>> {
        let FailureState { result, answers } = self.state().clone();
        let answer = match result {
            CallResult::Works => works(&self.inner),
            CallResult::Hangs => return ended(hanging, pending()),
            CallResult::Fails(error) => MaybeFuture::Ready(Err(error())),
        };
        match answers {
            Answers::AtOnce => answer,
            Answers::After(time) => ended(slow, async move {
                sleep(time).await;
                answer.wait().await
            }),
            Answers::Held(gate) => ended(slow, async move {
                let _ = gate.acquire().await;
                answer.wait().await
            }),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        Capabilities::from_store(&*self.inner).timeout
    }

    fn ends_of_decision(&self, deadline: Deadline) -> [Option<Instant>; 2] {
        let end = self.timeout().and_then(|timeout| deadline.earlier(Deadline::after(timeout)).instant());
        [end; 2]
    }

    fn ends(&self) -> [Option<Instant>; 2] {
        [None, Deadline::after(self.timeout().unwrap_or(DEFAULT_TIMEOUT)).instant()]
    }
}

fn locked(state: &Mutex<FailureState>) -> MutexGuard<'_, FailureState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answers that a [`FailingStore`] [holds](FailingStore::hold) until this is released or dropped.
#[must_use = "answers are held only until it is dropped"]
pub struct Held {
    gate: Arc<Semaphore>,
    state: Arc<Mutex<FailureState>>,
}

impl Held {
    /// Releases the answers. Unless the test has changed the behaviour of the store since, no more answers are held.
    pub fn release(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.close();
        let mut state = locked(&self.state);
        if matches!(&state.answers, Answers::Held(gate) if Arc::ptr_eq(gate, &self.gate)) {
            state.answers = Answers::AtOnce;
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

fn ended<T: Send + 'static>(
    at: Option<Instant>,
    answer: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> MaybeFuture<Result<T, Error>> {
    MaybeFuture::pending(async move {
        let Some(at) = at else { return answer.await };
        let late = |_| Err(Error::timeout("the store is late, as a test made it"));
        timeout_at(at, answer).await.unwrap_or_else(late)
    })
}

impl<S: Store> Store for FailingStore<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.call(self.ends_of_decision(ask.deadline), |inner| inner.decide(checks, ask))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.call(self.ends(), |inner| inner.settle(receipt, changes))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.call(self.ends(), |inner| inner.adjust(counter, change))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
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
