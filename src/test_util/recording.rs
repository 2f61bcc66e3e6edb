//! A store that records how it is called.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::Error;
use crate::store::{
    Answer, Applied, Ask, AskMode, Capabilities, Change, Check, Counter, Decided, Receipt, Requirement, Settlement,
    Settling, Store, Taken,
};

/// A store around a store that records each call before it passes it on. Clones share the inner store and the records.
///
/// # Examples
///
/// ```
/// use tollgate::test_util::{Recorded, RecordingStore};
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let store = RecordingStore::new(MemoryStore::new());
/// let limiter = Limiter::new(store.clone(), [Rule::new("mail", Quota::per_hour(100))]);
/// limiter.check_n(&Key::new("user", "ada"), 7).await?;
///
/// let Some(Recorded::Decide(checks)) = store.recorded().into_iter().next() else { unreachable!("it was called") };
/// assert_eq!((checks.len(), checks[0].cost), (1, 7));
/// assert_eq!(checks[0].counter.key().as_str(), "user:ada");
/// # Ok(())
/// # }
/// ```
pub struct RecordingStore<S> {
    inner: Arc<S>,
    recorded: Arc<Mutex<Vec<Recorded>>>,
}

/// A call of a method of a [`RecordingStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Recorded {
    /// [`Store::decide`], with the checks of one request.
    Decide(Vec<Check>),
    /// The same as a [probe](AskMode::Probe), which a layer makes after a failure.
    Probe(Vec<Check>),
    /// [`Store::settle`], with what the receipt says was taken, and the changes to that.
    Settle(Vec<Taken>, Vec<Settlement>),
    /// [`Store::adjust`].
    Adjust(Counter, Change),
}

impl<S: Store> RecordingStore<S> {
    /// A store around `inner`, which has recorded nothing.
    pub fn new(inner: S) -> Self {
        Self { inner: Arc::new(inner), recorded: Arc::default() }
    }

    /// Returns the calls so far, in their order. Those of [`Store::capabilities`] are not recorded.
    #[must_use]
    pub fn recorded(&self) -> Vec<Recorded> {
        self.records().clone()
    }

    /// Returns the calls so far, in their order, and forgets them.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.records())
    }

    fn record(&self, call: Recorded) {
        self.records().push(call);
    }

    fn records(&self) -> MutexGuard<'_, Vec<Recorded>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Store for RecordingStore<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        let record = if ask.mode == AskMode::Probe { Recorded::Probe } else { Recorded::Decide };
        self.record(record(checks.to_vec()));
        self.inner.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.record(Recorded::Settle(receipt.taken().to_vec(), changes.to_vec()));
        self.inner.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        self.record(Recorded::Adjust(counter.clone(), change));
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

impl<S> Clone for RecordingStore<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), recorded: Arc::clone(&self.recorded) }
    }
}

impl<S: fmt::Debug> fmt::Debug for RecordingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
