//! Where decisions are made: on one server, or on the primaries of a Cluster.

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
    #[cfg(feature = "cluster")]
    Cluster(std::sync::Arc<Cluster>),
}

#[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "one server has every slot"))]
impl Servers {
    /// The slot of a key in Redis.
    pub(super) fn slot_of(&self, redis_key: &str) -> u16 {
        match self {
            Self::One(_) => 0,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => slot_of(redis_key),
        }
    }

    /// Whether all checks are over keys of one slot for certain: those over one key are.
    pub(super) fn keep_together(&self, checks: &[Check]) -> bool {
        match self {
            Self::One(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => checks.windows(2).all(|two| two[0].counter.key == two[1].counter.key),
        }
    }

    /// Has a job done by whoever has its slot. Returns the ID of the calling runtime, or
    /// `None` if another one does it.
    ///
    /// # Errors
    ///
    /// If nobody can.
    pub(super) fn push(&self, job: Job) -> Result<Option<Id>, Error> {
        match self {
            Self::One(lanes) => lanes.push(job).map_err(|_| no_runtime()),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.push(job),
        }
    }

    /// Finds out who has which slot, if that is not known at all.
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

    /// The error of who waited in vain for a lane of another runtime.
    pub(super) fn late(&self, slot: u16, timeout: Timeout) -> Error {
        self.lanes(slot).map_or_else(|| timeout.error(), |lanes| lanes.late(timeout))
    }

    /// The runtime on which the answers to the calling one are received, of keys in a slot.
    pub(super) fn runtime(&self, slot: u16) -> Option<Handle> {
        self.lanes(slot)?.runtime()
    }

    /// The lanes to the server of a slot, if there is one.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unnecessary_wraps, reason = "one server has every slot"))]
    fn lanes(&self, slot: u16) -> Option<Lanes> {
        match self {
            Self::One(lanes) => Some(lanes.clone()),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.lanes(slot),
        }
    }

    /// As [`push`](Self::push), for what nobody waits for.
    pub(super) fn push_settlement(&self, job: Job) {
        match self {
            Self::One(lanes) => lanes.push_settlement(job),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.push_settlement(job),
        }
    }

    /// Why a call for a slot is not worth making: its primary would not be asked.
    pub(super) fn not_asked(&self, slot: u16) -> Option<Error> {
        match self {
            // Its layer's breaker knows.
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.not_asked(slot),
        }
    }

    /// The primaries of a Cluster, and whether they are asked.
    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One(_) => Vec::new(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breakers(),
        }
    }

    /// Connects and loads what is called.
    pub(super) async fn prepare(&self, calls: Calls, timeout: Timeout) -> Result<(), Error> {
        match self {
            Self::One(server) => server.prepare(calls, timeout).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.prepare(calls).await,
        }
    }
}
