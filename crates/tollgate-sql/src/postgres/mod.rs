//! PostgreSQL as a store of tollgate, for services that have no Redis.
//!
//! All algorithms, costs, refunds and decisions over several policies work as they do in Redis, and the limits are exact
//! over all processes that use one database.
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
//! An admitted request takes two round trips, each of which is pipelined:
//!
//! 1. `BEGIN` with timeouts; advisory locks for all counters; their states and the server's clock.
//! 2. The new states; `COMMIT`.
//!
//! A refused request takes one, and its `ROLLBACK` is not waited for. The locks are in ascending order of their numbers,
//! so decisions never wait for each other in a circle, and cover counters that have no row yet. The isolation is
//! `READ COMMITTED`, where each statement has a snapshot of its own: that of the states is taken after the locks, so it
//! has what the previous owner of the locks has committed.
//!
//! If a statement fails, or the server ends the session before COMMIT, the transaction was surely rolled back, and the error
//! says so: refunds, charges and releases of slots are tried again. A connection that is lost while COMMIT is under way may
//! have committed.
//!
//! The server bounds each statement, each wait for a lock, and the time between the two round trips by the budget of a
//! decision: a process that stops in between keeps no locks for longer than that.
//!
//! # The table
//!
//! [`Postgres::migrate`] creates `tollgate_states`. It has no index on the time at which a row expires, so that updates
//! are heap-only and leave nothing for `VACUUM` in the indexes. Expired rows count as none. After every 1,000 rows that a
//! process has written, it examines 4,000 rows, 1,000 in a transaction, in the order of their ids, and removes those that
//! have expired.
//!
//! [`Postgres::migrate_unlogged`] creates it `UNLOGGED`: commits do not wait for the disk, but after a crash of the
//! server, or on a standby that was promoted, the table is empty, so all clients start anew. Between the two is
//! `?options=-c%20synchronous_commit%3Doff` in the URL: commits do not wait for the disk either, and a crash loses those
//! of at most the last three `wal_writer_delay`, 600 ms by default.
//!
//! # Why tokio-postgres
//!
//! It pipelines statements whose futures are polled together, which is what makes two round trips of a decision.

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
