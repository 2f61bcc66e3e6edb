//! How a call to Redis fails, and what that shows about the connection.
//!
//! Errors of the redis crate come in; this crate's errors, and the decision whether a connection
//! can be used further, go out. There are three degrees:
//!
//! - the connection is cut: earlier replies are good, and there will be none after them;
//! - it is lost: cut, or out of step, so that its next reply may be to an earlier call;
//! - it leads to the wrong server: to a replica, after a failover. Another connection may do
//!   better.
//!
//! All else, such as `OOM` or `NOSCRIPT`, leaves the connection as it is.

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
    /// It shows nothing about the server: the call was not sent, or its failure is counted with
    /// that of another one.
    Unsent,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent => f.write_str("the connection was lost"),
            Self::Late => f.write_str("no reply in time"),
            Self::NotConnected(error) => write!(f, "{error:#}"),
            Self::Error(error) => f.write_str(&chain(error)),
        }
    }
}

/// Errors that only a replica returns, and so does a primary that became one after a failover. With
/// each the text by which it is found within the error of a script.
const OF_A_REPLICA: [(ServerErrorKind, &str); 2] =
    [(ServerErrorKind::ReadOnly, " -READONLY "), (ServerErrorKind::MasterDown, " -MASTERDOWN ")];

/// Returns whether another connection may do better: this one is lost, or leads to a replica.
pub(in crate::store::redis) fn is_of_the_connection(error: &RedisError) -> bool {
    is_of_a_replica(error) || is_lost(error)
}

/// Returns whether the connection has ended, or returned something else than was called for: its
/// next reply may be to an earlier call.
pub(in crate::store::redis) fn is_lost(error: &RedisError) -> bool {
    is_cut(error) || error.is_unrecoverable_error() || error.kind() == ErrorKind::UnexpectedReturnType
}

/// Returns whether the connection has ended. Replies received before are valid.
pub(in crate::store::redis) fn is_cut(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

/// Returns whether it redirects to another node (`MOVED` or `ASK`), as only nodes of a Cluster do.
pub(in crate::store::redis) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// Returns whether only a replica fails in this way. Before Redis 7, and on `KeyDB`, an error
/// within a script has its code only within the text of another error.
fn is_of_a_replica(error: &RedisError) -> bool {
    let script = error.detail().filter(|detail| detail.starts_with("Error running script"));
    let mut codes = OF_A_REPLICA.iter();
    codes.any(|(kind, code)| {
        error.kind() == ErrorKind::Server(*kind) || script.is_some_and(|detail| detail.contains(code))
    })
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
    fn what_a_replica_replies_ends_a_connection_also_from_within_a_script_of_before_redis_7() {
        let within = "ERR Error running script (call to f_2ff5b62d0f8b1e0a3b35a6f5b0a4f3c2d2a1b0c9): @user_script:12: ";
        let read_only = "READONLY You can't write against a read only replica.";
        let is_down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
        for reply in [read_only, is_down] {
            for text in
                [reply.to_owned(), format!("{reply} script: 2ff5, on @user_script:12."), format!("{within}-{reply}")]
            {
                assert!(is_of_the_connection(&sent(&text)), "{text}");
            }
        }
    }

    #[test]
    fn what_any_server_may_reply_ends_no_connection() {
        let within = "ERR Error running script (call to f_2ff5): @user_script:12: ";
        for text in [
            "OOM command not allowed when used memory > 'maxmemory'.".to_owned(),
            "NOSCRIPT No matching script. Please use EVAL.".to_owned(),
            "LOADING Redis is loading the dataset in memory".to_owned(),
            "ERR unknown command -READONLY , with args".to_owned(),
            format!("{within}-OOM command not allowed when used memory > 'maxmemory'."),
            format!("{within}@user_script: 12: unknown key READONLY in table"),
        ] {
            assert!(!is_of_the_connection(&sent(&text)), "{text}");
        }
    }
}
