//! A PostgreSQL store for services without Redis.
//!
//! All algorithms, costs, refunds and decisions over several policies work like in Redis, and limits are exact over all
//! processes that use one database.
//!
//! ```no_run
//! use tollgate::store::DenyCache;
//! use tollgate::{Policy, Quota, RateLimitLayer, key};
//! use tollgate_sql::postgres::Postgres;
//!
//! # async fn run() -> Result<(), tollgate::Error> {
//! let postgres = Postgres::connect_lazy("postgres://app@localhost/app")?;
//! postgres.migrate().await?;
//! let policy = Policy::new("api", Quota::per_minute(100)).key(key::header("x-api-key"));
//! let layer = RateLimitLayer::new(DenyCache::new(postgres.store()?), policy);
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # A decision
//!
//! An allowed request takes two round trips, each of which is pipelined:
//!
//! 1. `BEGIN` with timeouts; advisory locks for all counters; their states and the server's clock.
//! 2. The new states; `COMMIT`.
//!
//! A denied request takes one round trip, without a wait for its `ROLLBACK`. The locks are in ascending order of their
//! numbers, so decisions never deadlock, and cover counters that have no row yet. The isolation level is
//! `READ COMMITTED`, in which each statement has its own snapshot. The snapshot of the states is taken after the locks,
//! so it includes the commit of the previous owner of the locks.
//!
//! If a statement fails, or the server ends the session before COMMIT, the transaction was certainly rolled back, and
//! the error says so: refunds, charges and releases of slots are tried again. If the connection is lost during COMMIT,
//! the transaction may have been committed.
//!
//! The server bounds each statement, each wait for a lock, and the time between the two round trips by the timeout of a
//! decision, so a process that stops in between keeps no locks for longer.
//!
//! # The table
//!
//! [`Postgres::migrate`] creates `tollgate_states`. It has no index on the time at which a row expires, so that updates
//! are heap-only and leave nothing for `VACUUM` in the indexes. Expired rows are ignored. After every 1,000 rows that a
//! process has written, it examines 4,000 rows, 1,000 in a transaction, in the order of their ids, and removes expired
//! rows.
//!
//! [`Postgres::migrate_unlogged`] creates it `UNLOGGED`: commits do not wait for the disk, but after a crash of the
//! server, or on a standby that was promoted, the table is empty, so all clients start from 0. A compromise is
//! `?options=-c%20synchronous_commit%3Doff` in the URL: commits do not wait for the disk either, but a crash loses only
//! the commits of at most the last three `wal_writer_delay`, 600 ms by default.
//!
//! # Why tokio-postgres
//!
//! It pipelines statements whose futures are polled together, so that a decision takes two round trips.

mod backend;
mod error;
mod migrate;
mod pool;
mod session;
mod settings;
mod sql;
mod sweep;
mod tx;

pub use deadpool_postgres;

pub use backend::Postgres;
pub use settings::PostgresBuilder;
pub use tx::PostgresTx;
