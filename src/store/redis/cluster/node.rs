//! A node and its circuit breaker.
//!
//! A failing node is not called, so that decisions over its slots fail at once. Decisions over other slots continue.
//! Layers use the same breaker: see `store/breaker.rs` for when it opens and probes.
//!
//! | outcome of a call | counts as |
//! | --- | --- |
//! | a reply | a success |
//! | `MOVED`, `ASK`, `TRYAGAIN`, `CROSSSLOT`, `NOSCRIPT` | a success: the node works |
//! | any other error, no connection, no reply in time | a failure |
//! | counted with another call | nothing |

use std::fmt;
use std::sync::Arc;

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::core::Error;
use crate::core::error::Kind;
use crate::store::BreakerState;
use crate::store::breaker::{CallPermit, FIRST_WAIT_MS, Outage, ReportedBreaker, Whose};
use crate::store::redis::connections::Failure;
use crate::store::redis::pipeline::Server;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Parses `host:port` of a redirection. An empty host is the host of `from`. `None` for `?`, unknown to the node.
    pub(super) fn read(text: &str, from: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::named(host, port.parse().ok()?, from)
    }

    pub(super) fn named(host: &str, port: u16, from: &Self) -> Option<Self> {
        let host = match host {
            "?" => return None,
            "" => &from.host,
            host => host.trim_start_matches('[').trim_end_matches(']'),
        };
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

pub(super) struct Node {
    pub(super) primary: Arc<Primary>,
    pub(super) server: Arc<Server>,
}

/// Separate from `Node` because connections with unsent settlements outlive the node.
pub(super) struct Primary {
    pub(super) address: Address,
    breaker: ReportedBreaker,
}

impl Primary {
    pub(super) fn new(address: Address) -> Self {
        let breaker = ReportedBreaker::new(Whose::Primary(address.to_string()));
        Self { address, breaker }
    }

    /// The caller must [report](Self::report) the outcome. The error of an open breaker contains the outage.
    pub(super) fn acquire(&self) -> Result<CallPermit, Error> {
        self.breaker.acquire().ok_or_else(|| self.breaker_error())
    }

    pub(super) fn report(&self, permit: CallPermit, failure: Option<&Failure>) {
        match failure {
            Some(Failure::Error(error)) if is_of_the_slot(error) => self.breaker.succeeded(permit),
            Some(failure) => {
                // If it stays closed, the failure is logged with the requests.
                self.breaker.failed(permit, failure);
            }
            None => self.breaker.succeeded(permit),
        }
    }

    /// Releases the permit of a caller that left. The call may not have been made.
    pub(super) fn gave_up(&self, permit: CallPermit) {
        self.breaker.inner.gave_up(permit, || self.breaker.now() + FIRST_WAIT_MS);
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.inner.state()
    }

    pub(super) fn is_callable(&self) -> bool {
        self.state() == BreakerState::Closed || self.breaker.next_probe().is_zero()
    }

    pub(super) fn outage(&self) -> Outage {
        Outage { next_probe: self.breaker.next_probe(), failing_since: self.breaker.failing_since() }
    }

    pub(super) fn breaker_error(&self) -> Error {
        let text = format!("the primary at {} is not called, as it failed too often a moment ago", self.address);
        Error::new(Kind::Connection, text).for_one_server(self.outage())
    }
}

/// Returns `true` for errors of slots or scripts, which are frequent while slots move and must not open the breaker.
fn is_of_the_slot(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, CrossSlot, Moved, NoScript, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask | TryAgain | CrossSlot | NoScript))
}
