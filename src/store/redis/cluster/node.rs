//! A node, and its circuit breaker.
//!
//! While a node fails it is not called, so that decisions over its slots fail at once; decisions over all other slots go
//! on. The breaker is the one that layers have: see `store/breaker.rs` for when it opens and when it probes.
//!
//! | outcome of a call | it counts as |
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
use crate::store::breaker::{FIRST_WAIT_MS, Outage, Permit, ReportedBreaker, Whose};
use crate::store::redis::connections::Failure;
use crate::store::redis::pipeline::Server;

/// Where a node listens. Nodes are identified by it: one that changes its address is another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads `host:port`, as redirections have it. Without a host it is that of the node that
    /// replied. Returns `None` if it is no address, or the host is `?`: the node does not know it.
    pub(super) fn read(text: &str, from: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::named(host, port.parse().ok()?, from)
    }

    /// Returns the address of a host and a port, as a node names them.
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

/// A node of the Cluster, which was a primary when it was looked up.
pub(super) struct Node {
    pub(super) primary: Arc<Primary>,
    /// What requests for its slots are sent by. It reports to the primary.
    pub(super) server: Arc<Server>,
}

/// A primary, without its connections, which outlive it by what they have yet to send.
pub(super) struct Primary {
    /// Where it listens, which identifies it.
    pub(super) address: Address,
    /// Opens when the node fails too often.
    breaker: ReportedBreaker,
}

impl Primary {
    /// Returns a primary at an address, whose circuit breaker is closed.
    pub(super) fn new(address: Address) -> Self {
        let breaker = ReportedBreaker::new(Whose::Primary(address.to_string()));
        Self { address, breaker }
    }

    /// Returns a permit to make one call, whose result is to be [reported](Self::report).
    ///
    /// # Errors
    ///
    /// If the circuit breaker is not closed, and no probe is due. The error has the outage.
    pub(super) fn acquire(&self) -> Result<Permit, Error> {
        self.breaker.acquire().ok_or_else(|| self.breaker_error())
    }

    /// Counts the outcome of a call.
    pub(super) fn report(&self, permit: Permit, failure: Option<&Failure>) {
        match failure {
            Some(Failure::Error(error)) if is_of_the_slot(error) => self.breaker.succeeded(permit),
            Some(failure) => {
                // If it stays closed, the failure is logged where its requests fail.
                self.breaker.failed(permit, failure);
            }
            None => self.breaker.succeeded(permit),
        }
    }

    /// Notes that the caller of a call has left, which may not have been made.
    pub(super) fn gave_up(&self, permit: Permit) {
        self.breaker.inner.gave_up(permit, || self.breaker.now() + FIRST_WAIT_MS);
    }

    /// Returns the state of its circuit breaker.
    pub(super) fn state(&self) -> BreakerState {
        self.breaker.inner.state()
    }

    /// Returns whether the next call is made: the circuit breaker is closed, or a probe is due.
    pub(super) fn is_callable(&self) -> bool {
        self.state() == BreakerState::Closed || self.breaker.next_probe().is_zero()
    }

    /// Returns how long until the next probe, and since when the node has failed.
    pub(super) fn outage(&self) -> Outage {
        Outage { next_probe: self.breaker.next_probe(), failing_since: self.breaker.failing_since() }
    }

    /// Returns the error of a call that is not made as the circuit breaker is open. It has the outage.
    pub(super) fn breaker_error(&self) -> Error {
        let text = format!("the primary at {} is not called, as it failed too often a moment ago", self.address);
        Error::new(Kind::Connection, text).of_one_server(self.outage())
    }
}

/// Returns whether an error shows that the node works, and only the slot or the script is not
/// there. Such an error must not open the circuit breaker: while slots move there are many.
fn is_of_the_slot(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, CrossSlot, Moved, NoScript, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask | TryAgain | CrossSlot | NoScript))
}
