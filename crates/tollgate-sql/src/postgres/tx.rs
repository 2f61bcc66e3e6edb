//! The transaction of one decision.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join3};
use tokio_postgres::Row;
use tollgate::Error;
use tollgate::store::{StateId, StateWrite};

use crate::{Committed, StateTx};

use super::backend::Inner;
use super::error::{call_error, commit_error, is_conflict, lost};
use super::pool;
use super::session::Session;

/// Longest time to keep a row, which its timestamp can hold.
const MAX_AGE: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// A transaction over the states that were loaded. It is rolled back if it is dropped.
pub struct PostgresTx {
    session: Session,
    inner: Arc<Inner>,
}

impl PostgresTx {
    /// Locks the ids, and returns a row for each of them.
    ///
    /// # Errors
    ///
    /// If a call failed. The transaction is then rolled back.
    pub(crate) async fn begin(inner: Arc<Inner>, ids: &[StateId]) -> Result<(Self, Vec<Row>), Error> {
        let ids: Vec<&str> = ids.iter().map(StateId::as_str).collect();
        let mut session = pool::session(&inner.pool).await?;
        let start = &inner.begin;
        let called = session.call(async |client, statements| {
            // Each is sent by its first poll, in this order, so the server has all of them in one round trip.
            join3(
                client.batch_execute(start),
                client.execute(&statements.lock, &[&ids]),
                client.query(&statements.load, &[&ids]),
            )
            .await
        });
        let (begun, locked, rows) = called.await;
        // The first error is the cause of the others.
        let rows = begun.and(locked).and(rows).map_err(call_error)?;
        Ok((Self { session, inner }, rows))
    }
}

impl StateTx for PostgresTx {
    async fn commit(mut self, writes: Vec<StateWrite>) -> Result<Committed, Error> {
        let count = writes.len();
        if self.session.is_closed() {
            return Err(lost());
        }
        let called = self.session.call(async |client, statements| {
            let (kept, gone): (Vec<StateWrite>, Vec<StateWrite>) =
                writes.into_iter().partition(|write| write.state.is_some());
            let ids: Vec<&str> = kept.iter().map(|write| write.id.as_str()).collect();
            let states: Vec<Option<&[u8]>> = kept.iter().map(|write| write.state.as_deref()).collect();
            let ttls: Vec<i64> = kept.iter().map(|write| micros(write.ttl)).collect();
            let gone: Vec<&str> = gone.iter().map(|write| write.id.as_str()).collect();
            let (wrote, forgot, committed) = join3(
                OptionFuture::from(
                    (!kept.is_empty()).then(async || client.execute(&statements.write, &[&ids, &states, &ttls]).await),
                ),
                OptionFuture::from(
                    (!gone.is_empty()).then(async || client.execute(&statements.forget, &[&gone]).await),
                ),
                client.batch_execute("COMMIT"),
            )
            .await;
            // After an error COMMIT rolls back, and succeeds with that.
            let wrote = wrote.transpose().and(forgot.transpose());
            let is_before = wrote.is_err();
            wrote.and(committed).map_err(|error| (error, is_before))
        });
        match called.await {
            Ok(()) => {
                self.session.end();
                self.inner.wrote(count);
                Ok(Committed::Written)
            }
            Err((error, _)) if is_conflict(&error) => Ok(Committed::Conflict),
            Err((error, is_before)) => Err(commit_error(error, is_before)),
        }
    }
}

fn micros(ttl: Duration) -> i64 {
    i64::try_from(ttl.min(MAX_AGE).as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}
