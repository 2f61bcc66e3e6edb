//! Asking a server something that is no decision: it waits for nobody, and shares no call.

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
    /// Connects and loads what is called, in one step: the library, or the scripts for each algorithm
    /// alone; those for more are loaded when they are first called. The answers are the caller's to bound.
    pub(in crate::store::redis) async fn prepare(&self, calls: Calls, timeout: Timeout) -> Result<(), Error> {
        let lane = self.lane().ok_or_else(no_runtime)?;
        let mut shared = connection(&lane, timeout).await.map_err(|failure| timeout.error_of(failure))?;
        let loaded = match calls {
            Calls::Scripts => connections::load_all(Program::each_script(), &mut shared.handle).await,
            Calls::Functions => connections::load(Program::library(), &mut shared.handle).await,
        };
        loaded.map_err(|error| failed(&error))
    }

    /// Asks the server something by itself, within the budget. A connection that fails, or answers nobody
    /// meanwhile, is not used again; one whose caller went away is, and one that is merely slow.
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

/// The connection of a lane, once there is one.
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
