//! A database of tests: a B-tree of states with versions, which may wait, fail, or take part in conflicts.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::Error;
use tollgate::store::{StateId, StateWrite};
use tollgate_sql::{Committed, Loaded, StateBackend, StateTx};

/// A state with the number of its last write.
type Row = (u64, Option<Vec<u8>>);

/// What the table does next; `Works` after each of the others, but for those that refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Works,
    /// The load fails with an error of the connection.
    FailsToLoad,
    /// The load never returns.
    HangsToLoad,
    /// One state fewer than ids.
    ForgetsOne,
    /// States that are none.
    ReturnsNoState,
    PanicsInLoad,
    /// The load never returns, and panics when it is dropped.
    PanicsWhenDropped,
    /// The states are written, and the reply is lost.
    LosesCommit,
    /// The states are written after this time.
    CommitsAfter(Duration),
    /// So many commits are conflicts.
    Conflicts(u64),
    /// All loads fail with an error of the connection, until something else is next.
    RefusesLoads,
    /// All commits fail before anything was written, and say so, until something else is next.
    RefusesCommits,
}

/// The table, shared by all clones.
#[derive(Clone)]
pub(crate) struct Table {
    shared: Arc<Shared>,
}

struct Shared {
    rows: Mutex<BTreeMap<StateId, Row>>,
    next: Mutex<Next>,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    /// How long each load and each commit takes; none of them waits if it is zero. Timers tick once a millisecond: one
    /// that takes less waits until others had their turn.
    trip: Duration,
    loads: AtomicU64,
    commits: AtomicU64,
}

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("the load panics when it is dropped");
    }
}

pub(crate) struct Tx {
    table: Table,
    versions: Vec<(StateId, u64)>,
}

impl Table {
    pub(crate) fn new(clock: impl Fn() -> Duration + Send + Sync + 'static, trip: Duration) -> Self {
        let (loads, commits) = (AtomicU64::new(0), AtomicU64::new(0));
        let (rows, next) = (Mutex::default(), Mutex::new(Next::Works));
        Self { shared: Arc::new(Shared { rows, next, clock: Box::new(clock), trip, loads, commits }) }
    }

    pub(crate) fn next(&self, next: Next) {
        *self.shared.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Replaces the states of a key by bytes that are none.
    pub(crate) fn spoil(&self, key: &str) {
        for (id, row) in self.rows().iter_mut().filter(|(id, _)| id.as_str().contains(key)) {
            *row = (row.0 + 1, Some(id.as_str().into()));
        }
    }

    /// How many times states were loaded, and committed.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.shared.loads.load(Ordering::SeqCst), self.shared.commits.load(Ordering::SeqCst))
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<StateId, Row>> {
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_next(&self, is_of_load: bool) -> Next {
        let mut next = self.shared.next.lock().unwrap_or_else(PoisonError::into_inner);
        let of_commit =
            matches!(*next, Next::LosesCommit | Next::CommitsAfter(_) | Next::Conflicts(_) | Next::RefusesCommits);
        if of_commit == is_of_load {
            return Next::Works;
        }
        let taken = *next;
        *next = match taken {
            Next::Conflicts(more @ 2..) => Next::Conflicts(more - 1),
            Next::RefusesLoads | Next::RefusesCommits => taken,
            _ => Next::Works,
        };
        taken
    }

    async fn travel(&self) {
        if self.shared.trip >= Duration::from_millis(1) {
            tokio::time::sleep(self.shared.trip).await;
        } else if !self.shared.trip.is_zero() {
            tokio::task::yield_now().await;
        }
    }

    fn write(&self, versions: &[(StateId, u64)], writes: Vec<StateWrite>) -> Committed {
        let mut rows = self.rows();
        let version = |id: &StateId| rows.get(id).map_or(0, |(version, _)| *version);
        if versions.iter().any(|(id, loaded)| version(id) != *loaded) {
            return Committed::Conflict;
        }
        for write in writes {
            assert!(versions.iter().any(|(id, _)| *id == write.id), "{write:?} was not loaded");
            let row = rows.entry(write.id).or_default();
            *row = (row.0 + 1, write.state);
        }
        Committed::Written
    }
}

impl StateBackend for Table {
    type Tx = Tx;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Tx>, Error> {
        self.shared.loads.fetch_add(1, Ordering::SeqCst);
        assert!(!ids.is_empty() && ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let next = self.take_next(true);
        self.travel().await;
        let found: Vec<Row> = {
            let rows = self.rows();
            ids.iter().map(|id| rows.get(id).cloned().unwrap_or_default()).collect()
        };
        let versions = ids.iter().cloned().zip(found.iter().map(|(version, _)| *version)).collect();
        let mut states: Vec<_> = found.into_iter().map(|(_, state)| state).collect();
        match next {
            Next::FailsToLoad | Next::RefusesLoads => {
                return Err(Error::connection("the table is locked away", std::fmt::Error));
            }
            Next::HangsToLoad => pending().await,
            Next::PanicsInLoad => panic!("the table panics"),
            Next::PanicsWhenDropped => {
                let _panics = Panics;
                pending::<()>().await;
            }
            Next::ForgetsOne => drop(states.pop()),
            Next::ReturnsNoState => states.fill(Some(b"\x02none".to_vec())),
            _ => {}
        }
        Ok(Loaded::new((self.shared.clock)(), states, Tx { table: self.clone(), versions }))
    }
}

impl StateTx for Tx {
    async fn commit(self, writes: Vec<StateWrite>) -> Result<Committed, Error> {
        let Self { table, versions } = self;
        table.shared.commits.fetch_add(1, Ordering::SeqCst);
        assert!(!writes.is_empty());
        let next = table.take_next(false);
        table.travel().await;
        match next {
            Next::Conflicts(_) => return Ok(Committed::Conflict),
            Next::CommitsAfter(time) => tokio::time::sleep(time).await,
            Next::RefusesCommits => {
                return Err(Error::connection("the table is read-only", std::fmt::Error).unsent());
            }
            _ => {}
        }
        let committed = table.write(&versions, writes);
        if next == Next::LosesCommit {
            return Err(Error::connection("the reply of the table was lost", std::fmt::Error));
        }
        Ok(committed)
    }
}
