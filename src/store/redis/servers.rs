//! Where decisions are made: on one server, or on the primaries of a Cluster.

use deadpool_redis::redis::{Cmd, Value};

#[cfg(feature = "cluster")]
pub(super) use super::cluster::Waiter;
#[cfg(feature = "cluster")]
use super::cluster::{Cluster, SLOTS, slot_of};
use super::connection::Connections;
use super::patience::{Failure, Patience};
use super::script::{Calls, Program, Way};
use crate::Error;
use crate::store::{BreakerState, Check};

/// Nobody: there is no Cluster.
#[cfg(not(feature = "cluster"))]
pub(super) enum Waiter {}

#[cfg(not(feature = "cluster"))]
impl Waiter {
    pub(super) fn gives_up(self) {
        match self {}
    }
}

/// One server, or many that share the keys by slots.
#[derive(Debug)]
pub(super) enum Servers {
    /// It has every key; all are in slot 0.
    One(Connections),
    #[cfg(feature = "cluster")]
    Cluster(std::sync::Arc<Cluster>),
}

#[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "one server has every slot"))]
impl Servers {
    /// How many slots there are: keys of one can be in one call.
    pub(super) fn slots(&self) -> u16 {
        match self {
            Self::One(_) => 1,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => SLOTS,
        }
    }

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

    /// Makes a call whose keys are in a slot.
    pub(super) async fn call(
        &self,
        slot: u16,
        patience: Patience,
        program: &Program,
        call: &Cmd,
    ) -> Result<Value, Failure> {
        match self {
            Self::One(server) => {
                server.ask(patience, async |connection| program.call(connection, call, Way::Plain).await).await
            }
            #[cfg(feature = "cluster")]
            // Boxed, as it is larger than the call to one server.
            Self::Cluster(cluster) => Box::pin(cluster.call(slot, patience, program, call)).await,
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

    /// The error of a call for a slot: on a Cluster it is one of the slot's primary.
    pub(super) fn told(&self, slot: u16, error: Error) -> Error {
        match self {
            Self::One(_) => error,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.told(slot, error),
        }
    }

    /// Somebody who waits for a call that others make. A layer counts those of one server by itself.
    pub(super) fn waiter(&self, slot: u16) -> Option<Waiter> {
        match self {
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Some(cluster.waiter(slot)),
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
    pub(super) async fn prepare(&self, calls: Calls) -> Result<(), Error> {
        match self {
            Self::One(server) => server.prepare(calls).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.prepare(calls).await,
        }
    }
}
