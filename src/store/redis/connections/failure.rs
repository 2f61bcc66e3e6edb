use std::fmt;

use crate::core::Error;
use crate::core::error::{Kind, chain};
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

#[derive(Debug)]
pub(in crate::store::redis) enum Failure {
    /// May have been executed.
    Late,
    /// Nothing was sent.
    NotConnected(Error),
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

/// Only nodes of a Cluster redirect, by `MOVED` or `ASK`.
pub(in crate::store::redis) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

pub(in crate::store::redis) fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}

/// Returns `true` for errors of replicas only. After a failover, another connection may reach the primary.
pub(in crate::store::redis) fn is_of_a_replica(error: &RedisError) -> bool {
    has_code(error, &["READONLY", "MASTERDOWN"])
}

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

/// Errors after which nothing was executed, and the same or another server may execute the call later.
const NOT_DONE: [&str; 9] =
    ["READONLY", "OOM", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY"];

/// Returns `true` if the call was certainly not executed, and may succeed later.
pub(in crate::store::redis) fn is_definite(error: &RedisError) -> bool {
    is_redirection(error) || has_code(error, &NOT_DONE)
}

/// Before Redis 7, and on `KeyDB`, an error within a script has its code only in the text of another error.
fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    let script = error.detail().filter(|detail| detail.starts_with("Error running script"));
    error.code().is_some_and(|code| codes.contains(&code))
        || script.is_some_and(|detail| codes.iter().any(|code| detail.contains(&format!(" -{code} "))))
}

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
