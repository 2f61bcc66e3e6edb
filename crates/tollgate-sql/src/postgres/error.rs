//! Conversion of PostgreSQL errors into kinds, by which the circuit breaker and metrics count them.

use std::error::Error as StdError;
use std::io;

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tollgate::Error;

pub(crate) fn call_error(error: tokio_postgres::Error) -> Error {
    if is_timeout(&error) {
        return Error::timeout(format!("postgres gave up: {}", text(&error)));
    }
    if is_connection(&error) {
        return Error::connection("the connection to postgres failed", error);
    }
    if error.code() == Some(&SqlState::UNDEFINED_TABLE) {
        return Error::store("postgres has no table tollgate_states: call migrate first", error);
    }
    Error::store("postgres replied with an error", error)
}

pub(crate) fn pool_error(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) => call_error(error),
        PoolError::Timeout(TimeoutType::Wait) => {
            Error::timeout("all connections to postgres were in use for the whole budget")
        }
        error => Error::connection("there is no connection to postgres", error),
    }
}

/// Returns `true` if another transaction certainly rolled back this one, which may be tried again.
pub(crate) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED]
        .into_iter()
        .any(|code| error.code() == Some(code))
}

/// Error of a transaction that was to be committed; `is_before` is `true` if a statement before COMMIT failed.
///
/// An error of a statement, even of COMMIT, rolls back. A server that shuts down, or ends a paused session, says so
/// instead of executing the next statement. After any other failure COMMIT may have succeeded.
pub(crate) fn commit_error(error: tokio_postgres::Error, is_before: bool) -> Error {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    let ends = |code: &SqlState| code.code().starts_with("57P0") || code.code().starts_with("25P0");
    let is_rolled_back = match severity {
        Some(Severity::Error) => true,
        Some(Severity::Fatal) => is_before && error.code().is_some_and(ends),
        _ => false,
    };
    let error = call_error(error);
    if is_rolled_back { error.unsent() } else { error }
}

pub(crate) fn lost() -> Error {
    Error::connection("the connection to postgres was lost", io::Error::from(io::ErrorKind::BrokenPipe)).unsent()
}

fn is_timeout(error: &tokio_postgres::Error) -> bool {
    [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::QUERY_CANCELED, &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT]
        .into_iter()
        .any(|code| error.code() == Some(code))
}

fn is_connection(error: &tokio_postgres::Error) -> bool {
    // Class 08 is connections, 28 is authorization, 57P is a server that stops or starts.
    let by_code = |code: &SqlState| {
        ["08", "28", "57P"].iter().any(|class| code.code().starts_with(class))
            || [&SqlState::TOO_MANY_CONNECTIONS, &SqlState::UNDEFINED_DATABASE].contains(&code)
    };
    let by_io = || error.source().is_some_and(<dyn StdError>::is::<io::Error>);
    error.code().map_or_else(|| error.is_closed() || by_io(), by_code)
}

fn text(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}
