//! Traits that a database implements to be a store.

use std::future::Future;
use std::time::Duration;

use tollgate::Error;
use tollgate::store::{StateId, StateWrite};

/// A database that keeps the states of counters, for a [`BackendStore`](crate::BackendStore).
///
/// A decision is one [`load`](Self::load), and if it takes anything, one [`commit`](StateTx::commit):
///
/// 1. `load` reads the states of all its counters, and the clock, at one point in time.
/// 2. The crate decides, and makes new states.
/// 3. `commit` writes them all, if none of the states that were loaded has changed since.
///
/// A database may lock the loaded ids until the transaction ends (also ids that have no state yet, because two
/// processes could otherwise create one), or compare versions when it commits, and report a
/// [conflict](Committed::Conflict).
///
/// # Time
///
/// All processes must use one clock, so `load` returns the database's time, as microseconds since the Unix epoch, read
/// after the locks were taken. If the clock steps back, counters are neither refilled nor rewound. If it jumps ahead by
/// more than a window, states written then are set aside, with a warning, once the clock is right again.
///
/// # Errors
///
/// [`Error::timeout`], [`Error::connection`] and [`Error::store`] are counted by the circuit breaker and in metrics by
/// their kinds. If `load` fails, no units were taken. If `commit` fails, it is unknown whether the states were written:
/// the requests fail, but may have been counted. An [`unsent`](Error::unsent) error says that the states certainly were
/// not written. Refunds, charges, and changes of slots that certainly were not made are retried, for at most 10 s.
/// Decisions are not.
///
/// # Cancellation
///
/// The store drops the future of `load` when the timeout of its requests elapses, and the future of `commit` 10 s
/// later, or either when its runtime stops. A dropped transaction must roll back.
///
/// # Examples
///
/// A table in memory, with versions:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex, PoisonError};
/// use std::time::{SystemTime, UNIX_EPOCH};
/// use tollgate::store::{StateId, StateWrite};
/// use tollgate::{Error, Key, Limiter, Quota, Rule};
/// use tollgate_sql::{BackendStore, Committed, Loaded, StateBackend, StateTx};
///
/// /// Each state with the number of its last write.
/// type Rows = Arc<Mutex<HashMap<StateId, (u64, Option<Vec<u8>>)>>>;
///
/// #[derive(Default)]
/// struct Table(Rows);
///
/// /// The versions that were loaded.
/// struct Tx(Rows, Vec<(StateId, u64)>);
///
/// impl StateBackend for Table {
///     type Tx = Tx;
///
///     async fn load(&self, ids: &[StateId]) -> Result<Loaded<Tx>, Error> {
///         let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let found: Vec<_> = ids.iter().map(|id| rows.get(id).cloned().unwrap_or_default()).collect();
///         let versions = ids.iter().cloned().zip(found.iter().map(|(version, _)| *version)).collect();
///         let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
///         let states = found.into_iter().map(|(_, state)| state).collect();
///         Ok(Loaded::new(now, states, Tx(Arc::clone(&self.0), versions)))
///     }
/// }
///
/// impl StateTx for Tx {
///     async fn commit(self, writes: Vec<StateWrite>) -> Result<Committed, Error> {
///         let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let version = |id: &StateId| rows.get(id).map_or(0, |(version, _)| *version);
///         if self.1.iter().any(|(id, loaded)| version(id) != *loaded) {
///             return Ok(Committed::Conflict);
///         }
///         for StateWrite { id, state, .. } in writes {
///             let row = rows.entry(id).or_default();
///             *row = (row.0 + 1, state);
///         }
///         Ok(Committed::Written)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let limiter = Limiter::new(BackendStore::new(Table::default()), [Rule::new("mail", Quota::per_hour(2))]);
/// let ada = Key::new("user", "ada");
/// for _ in 0..2 {
///     assert!(limiter.check(&ada).await?.is_allowed());
/// }
/// assert!(!limiter.check(&ada).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait StateBackend: Send + Sync + 'static {
    /// A transaction over the states that were loaded.
    type Tx: StateTx;

    /// Loads the states of these ids, which are distinct and in ascending order, at least 1 and at most 128.
    ///
    /// # Errors
    ///
    /// If they could not be read. Nothing was taken then.
    fn load(&self, ids: &[StateId]) -> impl Future<Output = Result<Loaded<Self::Tx>, Error>> + Send;
}

/// A transaction of a [`StateBackend`]. It is rolled back if it is dropped.
pub trait StateTx: Send + 'static {
    /// Writes all of these states, or none: at least 1, of ids that were loaded, each once.
    ///
    /// # Errors
    ///
    /// If it is unknown whether the states were written. The error is [`unsent`](Error::unsent) if they certainly were
    /// not.
    fn commit(self, writes: Vec<StateWrite>) -> impl Future<Output = Result<Committed, Error>> + Send;
}

/// The result of [`StateBackend::load`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded<T> {
    /// Time of the database's clock, since the Unix epoch. It counts in microseconds, and stops in 2077.
    pub now: Duration,
    /// The state of each id, in the order of the ids, or `None` if there is no state, or it has expired.
    pub states: Vec<Option<Vec<u8>>>,
    /// The transaction that will commit the new states.
    pub tx: T,
}

impl<T> Loaded<T> {
    /// States that were loaded at `now`, in the order of their ids.
    pub fn new(now: Duration, states: Vec<Option<Vec<u8>>>, tx: T) -> Self {
        Self { now, states, tx }
    }
}

/// The result of a [commit](StateTx::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All states were written.
    Written,
    /// No state was written, because another transaction has changed one of the loaded states. The store loads the
    /// states again and repeats the decision, at most 16 times and within the timeout.
    Conflict,
}
