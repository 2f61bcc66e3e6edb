use tollgate::Error;

use super::backend::Postgres;
use super::error::call_error;
use super::pool;

/// Number of the lock under which the table is created, the bytes of `tollgate`, because `IF NOT EXISTS` alone fails if
/// two processes create the table at once.
const LOCK: u64 = u64::from_be_bytes(*b"tollgate");

impl Postgres {
    /// Creates the table `tollgate_states` in the first schema of the search path, unless it exists.
    ///
    /// # Errors
    ///
    /// If it could not be created.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.create("").await
    }

    /// Creates the table as [`migrate`](Self::migrate) does, but `UNLOGGED`: commits are faster, and it is empty after a
    /// crash of the server and on a standby. A table that exists stays as it is.
    ///
    /// # Errors
    ///
    /// If it could not be created.
    pub async fn migrate_unlogged(&self) -> Result<(), Error> {
        self.create("UNLOGGED").await
    }

    async fn create(&self, kind: &str) -> Result<(), Error> {
        let client = pool::client(&self.inner.pool).await?;
        // Several statements in one call are one transaction. The fill factor leaves space in pages for later updates.
        let create = format!(
            "SELECT pg_advisory_xact_lock({LOCK});
             CREATE {kind} TABLE IF NOT EXISTS tollgate_states (
                 id text COLLATE \"C\" PRIMARY KEY, state bytea NOT NULL, expires_at timestamptz NOT NULL
             ) WITH (fillfactor = 70)"
        );
        client.batch_execute(&create).await.map_err(call_error)
    }
}
