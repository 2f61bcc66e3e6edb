//! Calls that share nothing with others: those that prepare a server, and plain commands.
//!
//! A caller borrows the lane's connection and sends on it by itself, next to the batches that the
//! lane sends; the lane drives the connection for both. Loading scripts when a store connects,
//! lookups of slots on a Redis Cluster, reports to a tally, and redis-cell's `CL.THROTTLE` are made in this way.
//!
//! Such a call bypasses the queue and the server's circuit breaker. A plain command is limited by
//! its timeout, and its outcome is reported to the connection: a reply is counted, so that the
//! connection is not considered silent, and a lost or silent connection is discarded. Calls that
//! prepare a server are limited by the timeout of their callers.

use std::sync::Arc;

use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::connection::Shared;
use super::lane::{Lane, stopped};
use super::lanes::{Lanes, no_runtime};
use super::queue::Borrower;
use super::timeout::{GRACE, Timeout};
use crate::core::Error;
use crate::store::redis::connections;
use crate::store::redis::connections::{Failure, failed, is_of_the_connection};
use crate::store::redis::wire::{Calls, Program};

impl Lanes {
    /// Connects and loads what will be called, in one step: the library, or the script of each
    /// algorithm alone; scripts for several algorithms are loaded when they are first called.
    ///
    /// `timeout` limits the wait for a connection only: the caller has to limit the rest.
    ///
    /// # Errors
    ///
    /// If there is no runtime, no connection within the timeout, or the server refuses to load.
    pub(in crate::store::redis) async fn prepare(&self, calls: Calls, timeout: Timeout) -> Result<(), Error> {
        let lane = self.lane().ok_or_else(no_runtime)?;
        let mut shared = connection(&lane, timeout).await.map_err(|failure| timeout.error_of(failure))?;
        let loaded = match calls {
            Calls::Scripts => connections::load_all(Program::each_script(), &mut shared.handle).await,
            Calls::Functions => connections::load(Program::library(), &mut shared.handle).await,
        };
        loaded.map_err(|error| failed(&error))
    }

    /// Makes a call on the connection of the calling runtime's lane, within the timeout. It is made
    /// once, and never repeated.
    ///
    /// A connection that is lost, or that received no reply at all during the call's time, is not
    /// used again; one that is merely slow is.
    ///
    /// # Errors
    ///
    /// - `NotConnected`: nothing was sent.
    /// - `Error`: the server refused, or the connection was lost.
    /// - `Late`: there was no reply in time; the call may yet take effect.
    ///
    /// # Cancellation
    ///
    /// Dropped, the call may have been sent or not. The connection stays in use.
    pub(in crate::store::redis) async fn call<T>(
        &self,
        timeout: Timeout,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Failure> {
        let lane = self.lane().ok_or(Failure::NotConnected(no_runtime()))?;
        let mut shared = connection(&lane, timeout).await?;
        let replies = shared.replies();
        match timeout_at(timeout.until, command(&mut shared.handle)).await {
            Ok(Ok(reply)) => {
                shared.count_reply();
                Ok(reply)
            }
            Ok(Err(error)) => {
                if is_of_the_connection(&error) || lane.server.is_lost(&error) {
                    lane.discard(shared.number);
                } else {
                    shared.count_reply();
                }
                Err(Failure::Error(error))
            }
            Err(_) => {
                if shared.replies() == replies {
                    lane.discard(shared.number);
                }
                Err(Failure::Late)
            }
        }
    }
}

/// Returns the connection of a lane, made if necessary, within the timeout. It waits a little longer
/// than that for the lane to end the wait with a more specific error.
async fn connection(lane: &Arc<Lane>, timeout: Timeout) -> Result<Shared, Failure> {
    if let Some(shared) = lane.current() {
        return Ok(shared);
    }
    let (sender, receiver) = oneshot::channel();
    if lane.borrow(Borrower { sender, timeout }).is_err() {
        return Err(Failure::NotConnected(stopped()));
    }
    match timeout_at(timeout.until + GRACE, receiver).await {
        Ok(Ok(connected)) => connected.map_err(Failure::NotConnected),
        Ok(Err(_)) => Err(Failure::NotConnected(stopped())),
        Err(_) => Err(Failure::Late),
    }
}
