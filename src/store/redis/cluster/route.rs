//! The way of jobs to the primaries of their slots, and the error where there is none.
//!
//! The engine's jobs come in; they go to a primary's lanes, or back to the caller as an error at
//! once. Whenever a job cannot be sent, the slots are looked up again in the background, as another
//! primary may have them by now. Errors contain the outage of the server that they come from, so
//! that a layer's own circuit breaker does not count them against the whole Cluster.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::runtime::Id;

use super::address::Address;
use super::map::Map;
use super::node::Node;
use super::nodes::Cluster;
use super::primary::Others;
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::outage::Outage;
use crate::store::redis::batch::{Job, Timeout, no_runtime};
use crate::store::redis::wire::Calls;

/// Limits how often `settlement_unsent` is logged.
static UNSENT: Lines = Lines::new();

impl Cluster {
    /// Adds a job to the lane of the primary that has its slot. Returns the ID of the calling
    /// runtime, or `None` if the lane runs on another one.
    ///
    /// # Errors
    ///
    /// If no primary has the slot, its circuit breaker is open, or there is no runtime.
    pub(in crate::store::redis) fn push(self: &Arc<Self>, job: Job) -> Result<Option<Id>, Error> {
        let Some(owner) = self.owner(job.slot) else {
            self.look_again(None);
            return Err(self.error_of_slot(job.slot, no_primary()));
        };
        if !owner.is_callable() {
            // Another one may have its slots by now.
            self.look_again(Some(owner.address.clone()));
            return Err(owner.breaker_error().of_one_server(owner.outage()));
        }
        owner.lanes.push(job).map_err(|_| no_runtime())
    }

    /// As [`push`](Self::push), for a settlement, for which no caller waits. If the circuit breaker
    /// is open, it waits in the lane. Without a primary for its slot it fails, which is
    /// logged.
    pub(in crate::store::redis) fn push_settlement(self: &Arc<Self>, job: Job) {
        if let Some(owner) = self.owner(job.slot) {
            return owner.lanes.push_settlement(job);
        }
        self.look_again(None);
        UNSENT.log("", |more| {
            tracing::warn!(
                code = "settlement_unsent",
                more,
                "a settlement was not sent: no primary of the Redis Cluster has its slot"
            );
        });
        job.complete(Err(no_primary().unsent()));
    }

    /// Makes a call of its own to the primary that has a slot, once, within the timeout. It is not counted by the
    /// circuit breaker.
    ///
    /// # Errors
    ///
    /// If no primary has the slot, there is no reply in time, or the call is refused or redirected: then the slots are
    /// looked up again.
    pub(in crate::store::redis) async fn call<T>(
        self: &Arc<Self>,
        slot: u16,
        timeout: Timeout,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        let Some(owner) = self.owner(slot) else {
            self.look_again(None);
            return Err(self.error_of_slot(slot, no_primary()));
        };
        owner.lanes.call(timeout, command).await.map_err(|failure| {
            // Another one may have the slot by now.
            self.look_again(Some(owner.address.clone()));
            timeout.error_of(failure).of_one_server(owner.outage())
        })
    }

    /// Returns whether one primary has two slots, as far as is known.
    pub(in crate::store::redis) fn is_same(&self, slot: u16, other: u16) -> bool {
        let [one, other] = [slot, other].map(|slot| self.owner(slot));
        one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
    }

    /// Returns how the Lua files are called.
    pub(in crate::store::redis) fn calls(&self) -> Calls {
        self.plan.settings.calls
    }

    /// Returns the error of a call for a slot if its primary's circuit breaker is open and no probe
    /// is due.
    pub(in crate::store::redis) fn breaker_error(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.is_callable())?;
        // Another one may have the slot by now.
        self.look_again(Some(node.address.clone()));
        Some(node.breaker_error().of_one_server(node.outage()))
    }

    /// Returns an error as one of the primary that has a slot. A slot without a primary counts as
    /// having failed since the store was made: requests must not be admitted, as through a short
    /// failure, for as long as that lasts.
    fn error_of_slot(&self, slot: u16, error: Error) -> Error {
        let no_node = || Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
        error.of_one_server(self.owner(slot).map_or_else(no_node, |node| node.outage()))
    }

    /// Returns the primaries as `host:port`, sorted, and the state of each one's circuit breaker.
    pub(in crate::store::redis) fn breakers(&self) -> Vec<(String, BreakerState)> {
        let states = |node: &Arc<Node>| (node.address.to_string(), node.state());
        let mut states: Vec<_> = self.map.load().nodes().iter().map(states).collect();
        states.sort_unstable_by(|(address, _), (other, _)| address.cmp(other));
        states
    }
}

impl Others for Cluster {
    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        Self::owner(self, slot)
    }

    fn named(self: Arc<Self>, redirection: &RedisError, from: &Address) -> Option<Arc<Node>> {
        let (address, _) = redirection.redirect_node()?;
        self.node(&Address::read(address, from)?).ok()
    }

    fn moved(&self, slot: u16, node: &Arc<Node>) {
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            map.give(slot..=slot, node);
            map
        });
    }

    fn keep(&self, node: &Arc<Node>) {
        Self::keep(self, node);
    }

    fn look_again(self: Arc<Self>, failed: Option<Address>) {
        Self::look_again(&self, failed);
    }
}

/// Returns the error of a slot that no known primary has.
fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}
