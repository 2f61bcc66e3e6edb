//! How a call to Redis fails, and what that says of the connection.

use std::fmt;

use crate::core::Error;
use crate::core::error::Kind;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::store::redis) enum Failure {
    /// There was none in time: what was asked may have been done.
    Late,
    /// Nothing was asked.
    NotConnected(Error),
    /// The server refused, or the connection was lost.
    Answered(RedisError),
    /// Nothing is known: it was not sent, or its failure is counted with another one.
    Unsent,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent => f.write_str("the connection was lost"),
            Self::Late => f.write_str("no answer in time"),
            Self::NotConnected(error) => write!(f, "{error:#}"),
            Self::Answered(error) => error.fmt(f),
        }
    }
}

/// What only a replica says; a primary that became one does, after a failover.
const OF_A_REPLICA: [(ServerErrorKind, &str); 2] =
    [(ServerErrorKind::ReadOnly, " -READONLY "), (ServerErrorKind::MasterDown, " -MASTERDOWN ")];

/// Whether another connection may do better: after a failover this one may lead to a replica.
pub(in crate::store::redis) fn is_of_the_connection(error: &RedisError) -> bool {
    is_of_a_replica(error) || is_lost(error)
}

/// Whether the connection has ended, or answered something else than was asked: what it answers next may
/// be to the question before.
pub(in crate::store::redis) fn is_lost(error: &RedisError) -> bool {
    is_cut(error) || error.is_unrecoverable_error() || error.kind() == ErrorKind::UnexpectedReturnType
}

/// Whether the connection has ended: what it answered before is good.
pub(in crate::store::redis) fn is_cut(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

/// Whether it sends elsewhere, as only nodes of a Cluster do.
pub(in crate::store::redis) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// Before Redis 7, and on `KeyDB`, an error within a script is told in the text of another one.
fn is_of_a_replica(error: &RedisError) -> bool {
    let script = error.detail().filter(|detail| detail.starts_with("Error running script"));
    let mut codes = OF_A_REPLICA.iter();
    codes.any(|(kind, code)| {
        error.kind() == ErrorKind::Server(*kind) || script.is_some_and(|detail| detail.contains(code))
    })
}

pub(in crate::store::redis) fn failed(error: &RedisError) -> Error {
    let (kind, text) = if error.is_timeout() {
        (Kind::Timeout, "Redis did not answer in time")
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
        let answer = parse_redis_value(format!("-{text}\r\n").as_bytes()).and_then(Value::extract_error);
        answer.expect_err("it begins as an error does")
    }

    #[test]
    fn what_a_replica_says_ends_a_connection_also_from_within_a_script_of_before_redis_7() {
        let within = "ERR Error running script (call to f_2ff5b62d0f8b1e0a3b35a6f5b0a4f3c2d2a1b0c9): @user_script:12: ";
        let read_only = "READONLY You can't write against a read only replica.";
        let is_down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
        for told in [read_only, is_down] {
            for text in
                [told.to_owned(), format!("{told} script: 2ff5, on @user_script:12."), format!("{within}-{told}")]
            {
                assert!(is_of_the_connection(&sent(&text)), "{text}");
            }
        }
    }

    #[test]
    fn what_any_server_may_say_ends_no_connection() {
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
