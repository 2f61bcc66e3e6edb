//! How a call to Redis fails, and what that shows about the connection.

use std::fmt;

use crate::core::Error;
use crate::core::error::{Kind, chain};
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why there is no reply to a call.
#[derive(Debug)]
pub(in crate::store::redis) enum Failure {
    /// There was none in time: what was sent may have been done.
    Late,
    /// There was no connection: nothing was sent.
    NotConnected(Error),
    /// The server refused the call, or the connection was lost.
    Error(RedisError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("no reply in time"),
            Self::NotConnected(error) => write!(f, "{error:#}"),
            Self::Error(error) => f.write_str(&chain(error)),
        }
    }
}

/// Returns whether it redirects to another node (`MOVED` or `ASK`), as only nodes of a Cluster do.
pub(in crate::store::redis) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// Returns whether the server does not have the script or the function that was called.
pub(in crate::store::redis) fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}

/// Returns whether only a replica fails in this way, as a primary does that became one after a failover, so that another
/// connection may do better.
pub(in crate::store::redis) fn is_of_a_replica(error: &RedisError) -> bool {
    has_code(error, &["READONLY", "MASTERDOWN"])
}

/// Returns this crate's error for one of the redis crate, which becomes its source: a timeout, a
/// lost connection, or a refusal of the server.
pub(in crate::store::redis) fn failed(error: &RedisError) -> Error {
    let (kind, text) = if error.is_timeout() {
        (Kind::Timeout, "Redis did not reply in time")
    } else if error.is_io_error() || error.is_connection_dropped() {
        (Kind::Connection, "the connection to Redis was lost")
    } else {
        (Kind::Store, "Redis refused a command")
    };
    Error::new(kind, text).with_source(error.clone())
}

/// Errors with which a server says that it has done nothing, and may do it later, or another one may.
const NOT_DONE: [&str; 9] =
    ["READONLY", "OOM", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY"];

/// Returns whether the server surely did nothing, and may yet do it.
pub(in crate::store::redis) fn is_definite(error: &RedisError) -> bool {
    is_redirection(error) || has_code(error, &NOT_DONE)
}

/// Returns whether an error has one of these codes. Before Redis 7, and on `KeyDB`, an error within a script has its code
/// only within the text of another error.
fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    let script = error.detail().filter(|detail| detail.starts_with("Error running script"));
    error.code().is_some_and(|code| codes.contains(&code))
        || script.is_some_and(|detail| codes.iter().any(|code| detail.contains(&format!(" -{code} "))))
}

/// Returns the error of a connection that could not be opened.
pub(super) fn not_connected(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Kind::Connection, "cannot connect to Redis").with_source(cause)
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::{Value, parse_redis_value};

    use super::*;

    /// An error as a server sends it.
    fn sent(text: &str) -> RedisError {
        let error = parse_redis_value(format!("-{text}\r\n").as_bytes()).and_then(Value::extract_error);
        error.expect_err("it begins as an error does")
    }

    #[test]
    fn what_a_replica_replies_ends_a_connection_also_from_within_a_script_of_before_redis_7_and_nothing_else() {
        let read_only = "READONLY You can't write against a read only replica.";
        let is_down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
        let full = "OOM command not allowed when used memory > 'maxmemory'.";
        let within = "ERR Error running script (call to f_2ff5b62d0f8b1e0a3b35a6f5b0a4f3c2d2a1b0c9): @user_script:12: ";
        for (text, ends) in [
            (read_only, true),
            (is_down, true),
            (&format!("{read_only} script: 2ff5, on @user_script:12."), true),
            (&format!("{within}-{read_only}"), true),
            (&format!("{within}-{is_down}"), true),
            (full, false),
            ("NOSCRIPT No matching script. Please use EVAL.", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("ERR unknown command -READONLY , with args", false),
            (&format!("{within}-{full}"), false),
            (&format!("{within}@user_script: 12: unknown key READONLY in table"), false),
        ] {
            assert_eq!(is_of_a_replica(&sent(text)), ends, "{text}");
        }
    }
}
