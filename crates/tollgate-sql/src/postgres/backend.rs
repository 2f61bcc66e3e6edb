//! PostgreSQL as a backend of [`BackendStore`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tollgate::Error;
use tollgate::store::StateId;

use crate::{BackendStore, Loaded, StateBackend};

use super::error::call_error;
use super::sweep::Sweep;
use super::tx::PostgresTx;

/// A PostgreSQL database that keeps the states of counters. Clones share everything.
#[derive(Clone)]
pub struct Postgres {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) budget: Duration,
    pub(crate) begin: String,
    pub(crate) sweep: Sweep,
}

impl Postgres {
    /// Returns a store on this database, with its timeout and as many concurrent transactions as the pool has
    /// connections.
    ///
    /// # Errors
    ///
    /// If the pool has no connections.
    pub fn store(&self) -> Result<BackendStore<Self>, Error> {
        let rounds = self.inner.pool.status().max_size;
        BackendStore::builder(self.clone()).timeout(self.inner.budget).max_transactions(rounds).try_build()
    }

    /// Returns the pool of connections.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }
}

impl Inner {
    pub(crate) fn new(pool: Pool, budget: Duration) -> Self {
        Self { pool, budget, begin: begin(budget), sweep: Sweep::default() }
    }
}

/// Begins a transaction in which no statement, no wait for a lock and no pause of the client is longer than `bound`.
pub(crate) fn begin(bound: Duration) -> String {
    // 0 is no bound.
    let ms = bound.as_millis().clamp(1, 3_600_000);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {ms}; \
         SET LOCAL statement_timeout = {ms}; SET LOCAL idle_in_transaction_session_timeout = {ms}"
    )
}

impl StateBackend for Postgres {
    type Tx = PostgresTx;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<PostgresTx>, Error> {
        let (tx, rows) = PostgresTx::begin(Arc::clone(&self.inner), ids).await?;
        let mut now = Duration::ZERO;
        let mut states = Vec::with_capacity(rows.len());
        for row in rows {
            let (at, state) = read(&row).map_err(call_error)?;
            now = now.max(at);
            states.push(state);
        }
        Ok(Loaded::new(now, states, tx))
    }
}

fn read(row: &Row) -> Result<(Duration, Option<Vec<u8>>), tokio_postgres::Error> {
    let micros: i64 = row.try_get(0)?;
    Ok((Duration::from_micros(micros.unsigned_abs()), row.try_get(1)?))
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("budget", &self.inner.budget).finish_non_exhaustive()
    }
}
