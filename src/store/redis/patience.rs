//! How long an answer is waited for, and how asking fails.

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::Error;
use crate::error::Kind;

/// Longer than any budget that is meant.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// A budget that runs.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Patience {
    budget: Duration,
    pub(super) until: Instant,
}

impl Patience {
    pub(in crate::store) fn new(budget: Duration) -> Self {
        Self { budget, until: Instant::now() + budget.min(FOREVER) }
    }

    /// What is told to who waited in vain.
    pub(super) fn late(self, late: Elapsed) -> Error {
        Error::new(Kind::Timeout, format!("Redis did not answer in {:?}", self.budget)).with_source(late)
    }

    /// What is told of a failure.
    pub(in crate::store) fn told(self, failure: Failure) -> Error {
        match failure {
            Failure::Late(late) => self.late(late),
            Failure::NotConnected(error) => error,
            Failure::Answered(error) | Failure::Lost(error) => failed(&error),
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::store) enum Failure {
    /// There was none in time: what was asked may have been done.
    Late(Elapsed),
    /// Nothing was asked.
    NotConnected(Error),
    /// The server refused, or the connection was lost.
    Answered(RedisError),
    /// The connection was lost, as another question on it had told before.
    Lost(RedisError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(_) => f.write_str("no answer in time"),
            Self::NotConnected(error) => write!(f, "{error:#}"),
            Self::Answered(error) | Self::Lost(error) => error.fmt(f),
        }
    }
}

/// Whether another connection may do better: after a failover this one may lead to a replica, and one
/// that answers something else may be out of step.
pub(super) fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.kind() == ErrorKind::UnexpectedReturnType
        || error.is_unrecoverable_error()
        || error.is_io_error()
        || error.is_connection_dropped()
}

pub(in crate::store) fn failed(error: &RedisError) -> Error {
    let (kind, text) = if error.is_timeout() {
        (Kind::Timeout, "Redis did not answer in time")
    } else if error.is_io_error() || error.is_connection_dropped() {
        (Kind::Connection, "the connection to Redis was lost")
    } else {
        (Kind::Store, "Redis refused a command")
    };
    Error::new(kind, text).with_source(error.clone())
}
