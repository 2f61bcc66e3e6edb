//! Where decisions are made: on one server, or on the primaries of a Cluster.
//!
//! Jobs and slots come in from the engine; they go to the lanes that lead to the right server. This
//! is the only place outside `cluster/` and `builder/` in which calls differ for a
//! Cluster: one server is treated as a Cluster whose slots are all slot 0.

use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::runtime::{Handle, Id};

use super::batch::{Job, Lanes, Timeout, no_runtime};
#[cfg(feature = "cluster")]
use super::cluster::{Cluster, slot_of};
use super::wire::Calls;
use crate::core::Error;
use crate::store::{BreakerState, Check};

/// One server, or many that share the keys by slots.
#[derive(Debug)]
pub(super) enum Servers {
    /// It has every key; all are in slot 0.
    One(Lanes),
    /// Each primary has the keys of its slots.
    #[cfg(feature = "cluster")]
    Cluster(std::sync::Arc<Cluster>),
}

#[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "one server has every slot"))]
impl Servers {
    /// Returns the slot of a key in Redis; 0 on one server.
    pub(super) fn slot_of(&self, redis_key: &str) -> u16 {
        match self {
            Self::One(_) => 0,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => slot_of(redis_key),
        }
    }

    /// Returns whether all checks are surely over keys of one slot, without computing any: on a
    /// Cluster those over one key of a client are. If not, they may still be.
    pub(super) fn keep_together(&self, checks: &[Check]) -> bool {
        match self {
            Self::One(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => checks.windows(2).all(|two| two[0].counter.key() == two[1].counter.key()),
        }
    }

    /// Adds a job to a lane of the server that has its slot. Returns the ID of the calling runtime,
    /// or `None` if the lane runs in another one.
    ///
    /// # Errors
    ///
    /// If no server has the slot, its circuit breaker is open, or there is no runtime.
    pub(super) fn push(&self, job: Job) -> Result<Option<Id>, Error> {
        match self {
            Self::One(lanes) => lanes.push(job).map_err(|_| no_runtime()),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.push(job),
        }
    }

    /// Looks up which server has which slot, if that is unknown, until the timeout.
    /// Usually it is known, and this returns at once.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_async, reason = "one server has every slot"))]
    pub(super) async fn find(&self, timeout: Timeout) {
        match self {
            Self::One(_) => {}
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) if cluster.is_unknown() => Box::pin(cluster.find(timeout)).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => {}
        }
    }

    /// Returns whether two slots are on the same server, as far as is known.
    pub(super) fn is_same(&self, slot: u16, other: u16) -> bool {
        match self {
            Self::One(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => slot == other || cluster.is_same(slot, other),
        }
    }

    /// Returns how the Lua files are called.
    pub(super) fn calls(&self) -> Calls {
        match self {
            Self::One(lanes) => lanes.calls(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.calls(),
        }
    }

    /// Makes a call of its own to the server that has a slot, once, within the timeout.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no server or connection, or the server refuses the call. On a Cluster the slots
    /// are then looked up again.
    ///
    /// # Cancellation
    ///
    /// The call may have been sent.
    pub(super) async fn call<T>(
        &self,
        slot: u16,
        timeout: Timeout,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        match self {
            Self::One(lanes) => lanes.call(timeout, command).await.map_err(|failure| timeout.error_of(failure)),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.call(slot, timeout, command).await,
        }
    }

    /// Returns the error of a caller whose wait for a lane of another runtime has timed out.
    pub(super) fn late(&self, slot: u16, timeout: Timeout) -> Error {
        self.lanes(slot).map_or_else(|| timeout.error(), |lanes| lanes.late(timeout))
    }

    /// Returns the runtime that receives the replies for the calling one, of keys in a slot.
    pub(super) fn runtime(&self, slot: u16) -> Option<Handle> {
        self.lanes(slot)?.runtime()
    }

    /// Returns the lanes to the server of a slot, if there is one.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unnecessary_wraps, reason = "one server has every slot"))]
    fn lanes(&self, slot: u16) -> Option<Lanes> {
        match self {
            Self::One(lanes) => Some(lanes.clone()),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.lanes(slot),
        }
    }

    /// As [`push`](Self::push), for a settlement: it is kept if it cannot be sent now, and no
    /// caller waits.
    pub(super) fn push_settlement(&self, job: Job) {
        match self {
            Self::One(lanes) => lanes.push_settlement(job),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.push_settlement(job),
        }
    }

    /// Returns the error of a call for a slot that would fail, as its primary's circuit breaker is open.
    /// One server has no circuit breaker here, as that of its layer does the same.
    pub(super) fn breaker_error(&self, slot: u16) -> Option<Error> {
        match self {
            // The circuit breaker of its layer does the same.
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breaker_error(slot),
        }
    }

    /// Returns the primaries of a Cluster and the states of their circuit breakers; empty for one
    /// server.
    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One(_) => Vec::new(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breakers(),
        }
    }

    /// Connects, and loads what is called.
    ///
    /// # Errors
    ///
    /// If the server, or every node of the Cluster, cannot be reached, or one refuses what is
    /// loaded.
    pub(super) async fn prepare(&self, calls: Calls, timeout: Timeout) -> Result<(), Error> {
        match self {
            Self::One(server) => server.prepare(calls, timeout).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.prepare(calls).await,
        }
    }
}
