//! Calls that share nothing with others: those that prepare a server, and plain commands.
//!
//! A caller borrows the lane's connection and sends on it by itself, next to the batches that the
//! lane sends; the lane drives the connection for both. Loading scripts when a store connects, the
//! questions about slots on a Redis Cluster, and redis-cell's `CL.THROTTLE` go this way.
//!
//! Such a call bypasses the queue and the server's circuit breaker. A plain command is limited by
//! its timeout, and its outcome is reported to the connection: a reply counts as one, so that nobody
//! takes the connection for silent, and a lost or silent connection is discarded. What prepares a
//! server is limited by the timeout of those who wait for it.

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
    /// - `Answered`: the server refused, or the connection was lost.
    /// - `Late`: there was no reply in time; the call may yet take effect.
    ///
    /// # Cancellation
    ///
    /// Dropped, the call may have been sent or not. The connection stays in use.
    #[cfg_attr(not(any(feature = "cluster", feature = "redis-cell")), allow(dead_code, reason = "scripts need none"))]
    pub(in crate::store::redis) async fn ask<T>(
        &self,
        timeout: Timeout,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Failure> {
        let lane = self.lane().ok_or(Failure::NotConnected(no_runtime()))?;
        let mut shared = connection(&lane, timeout).await?;
        let answers = shared.answers();
        match timeout_at(timeout.until, question(&mut shared.handle)).await {
            Ok(Ok(answer)) => {
                shared.count_answer();
                Ok(answer)
            }
            Ok(Err(error)) => {
                if is_of_the_connection(&error) || lane.server.is_lost(&error) {
                    lane.discard(shared.number);
                } else {
                    shared.count_answer();
                }
                Err(Failure::Answered(error))
            }
            Err(_) => {
                if shared.answers() == answers {
                    lane.discard(shared.number);
                }
                Err(Failure::Late)
            }
        }
    }
}

/// Returns the connection of a lane, made if need be, within the timeout. It waits a little longer
/// than that for the lane to end the wait with an error that says more.
async fn connection(lane: &Arc<Lane>, timeout: Timeout) -> Result<Shared, Failure> {
    if let Some(shared) = lane.current() {
        return Ok(shared);
    }
    let (answer, answered) = oneshot::channel();
    if lane.borrow(Borrower { answer, timeout }).is_err() {
        return Err(Failure::NotConnected(stopped()));
    }
    match timeout_at(timeout.until + GRACE, answered).await {
        Ok(Ok(connected)) => connected.map_err(Failure::NotConnected),
        Ok(Err(_)) => Err(Failure::NotConnected(stopped())),
        Err(_) => Err(Failure::Late),
    }
}
