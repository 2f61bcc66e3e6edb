use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join3;
use tokio::runtime::Handle;
use tollgate::Error;

use super::backend::{Inner, Postgres, begin};
use super::error::call_error;
use super::pool;
use super::session::Session;
use super::sql::Statements;

const WRITES: usize = 1_000;

/// Rows that one transaction examines. `SWEEP` has the same number.
const PORTION: i64 = 1_000;

/// Portions of a sweep: 4 rows for each row written, so a process examines more rows than it adds.
const PORTIONS: usize = 4;

const BOUND: Duration = Duration::from_secs(2);

/// Removes expired rows among the next ones after `$1`. Returns the last id examined, and the numbers of rows examined
/// and removed. Skips rows that are locked.
const SWEEP: &str = "
WITH portion AS MATERIALIZED (
  SELECT id, expires_at FROM tollgate_states WHERE id > $1 ORDER BY id LIMIT 1000
), removed AS (
  DELETE FROM tollgate_states WHERE id = ANY (ARRAY(
    SELECT id FROM tollgate_states
    WHERE id = ANY (ARRAY(SELECT id FROM portion WHERE expires_at <= clock_timestamp()))
      AND expires_at <= clock_timestamp()
    FOR UPDATE SKIP LOCKED
  )) RETURNING 1
)
SELECT (SELECT max(id) FROM portion), (SELECT count(*) FROM portion), (SELECT count(*) FROM removed)";

#[derive(Default)]
pub(crate) struct Sweep {
    writes: AtomicUsize,
    is_running: AtomicBool,
    last: Mutex<String>,
}

impl Postgres {
    /// Removes all expired rows, in transactions that examine 1,000 rows each, and returns the number of removed rows.
    /// A process that writes sweeps automatically. Use this for tables that are no longer written to.
    ///
    /// # Errors
    ///
    /// If a call failed. Rows removed before stay removed.
    pub async fn sweep(&self) -> Result<u64, Error> {
        let (mut last, mut removed) = (String::new(), 0);
        loop {
            let portion = portion(&self.inner, &last).await?;
            removed += portion.removed;
            match portion.last {
                Some(id) => last = id,
                None => return Ok(removed),
            }
        }
    }
}

impl Inner {
    pub(crate) fn wrote(self: &Arc<Self>, rows: usize) {
        let written = self.sweep.writes.fetch_add(rows, Ordering::Relaxed) + rows;
        if written < WRITES || self.sweep.is_running.swap(true, Ordering::Acquire) {
            return;
        }
        self.sweep.writes.store(0, Ordering::Relaxed);
        let running = Running(Arc::clone(self));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = some(&running.0).await {
                    tracing::warn!("expired rows were not removed: {error:#}");
                }
            });
        }
    }
}

async fn some(inner: &Inner) -> Result<(), Error> {
    for _ in 0..PORTIONS {
        let last = inner.sweep.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let next = portion(inner, &last).await?.last;
        let is_end = next.is_none();
        *inner.sweep.last.lock().unwrap_or_else(PoisonError::into_inner) = next.unwrap_or_default();
        if is_end {
            break;
        }
    }
    Ok(())
}

struct Portion {
    last: Option<String>,
    removed: u64,
}

async fn portion(inner: &Inner, last: &str) -> Result<Portion, Error> {
    let client = pool::client(&inner.pool).await?;
    let sweep = client.prepare_cached(SWEEP).await.map_err(call_error)?;
    let statements = Statements::prepare(&client).await.map_err(call_error)?;
    let (mut session, start) = (Session::new(client, statements), begin(BOUND));
    let called = session.call(async |client, _| {
        join3(client.batch_execute(&start), client.query_one(&sweep, &[&last]), client.batch_execute("COMMIT")).await
    });
    let (begun, row, committed) = called.await;
    let row = begun.and(row).and_then(|row| committed.map(|()| row)).map_err(call_error)?;
    session.end();
    let read = || Ok((row.try_get::<_, Option<String>>(0)?, row.try_get::<_, i64>(1)?, row.try_get::<_, i64>(2)?));
    let (last, examined, removed) = read().map_err(call_error)?;
    Ok(Portion { last: last.filter(|_| examined == PORTION), removed: removed.unsigned_abs() })
}

struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.sweep.is_running.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep").finish_non_exhaustive()
    }
}
