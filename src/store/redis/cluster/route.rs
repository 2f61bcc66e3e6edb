//! The way of jobs to the primaries of their slots, and what is said where there is none.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::RedisError;
use tokio::runtime::Id;

use super::address::Address;
use super::map::Map;
use super::node::Node;
use super::nodes::Cluster;
use super::primary::Others;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::BreakerState;
use crate::store::outage::Outage;
use crate::store::redis::batch::{Job, no_runtime};

impl Cluster {
    /// Has a job done by the primary that has its slot. Returns the ID of the calling
    /// runtime, or `None` if another one does it.
    ///
    /// # Errors
    ///
    /// If the slot has no primary, that failed too often a moment ago, or there is no runtime.
    pub(in crate::store::redis) fn push(self: &Arc<Self>, job: Job) -> Result<Option<Id>, Error> {
        let Some(owner) = self.owner(job.slot) else {
            self.look_again(None);
            return Err(self.error_of_slot(job.slot, no_primary()));
        };
        if !owner.is_asked() {
            // Another one may have its slots by now.
            self.look_again(Some(owner.address.clone()));
            return Err(owner.not_asked().of_one_server(owner.outage()));
        }
        owner.lanes.push(job).map_err(|_| no_runtime())
    }

    /// As [`push`](Self::push), for what nobody waits for.
    pub(in crate::store::redis) fn push_settlement(self: &Arc<Self>, job: Job) {
        if let Some(owner) = self.owner(job.slot) {
            return owner.lanes.push_settlement(job);
        }
        self.look_again(None);
        tracing::warn!("a settlement was not sent: no primary of the Redis Cluster has its slot");
        job.answer(Err(no_primary()));
    }

    /// Why a call for a slot is not worth making: its primary would not be asked.
    pub(in crate::store::redis) fn not_asked(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.is_asked())?;
        // Another one may have the slot by now.
        self.look_again(Some(node.address.clone()));
        Some(node.not_asked().of_one_server(node.outage()))
    }

    /// The error of a call for a slot, as one of its primary. A slot that has none is taken to have
    /// none for long: it must not be admitted whatever is asked for while that lasts.
    fn error_of_slot(&self, slot: u16, error: Error) -> Error {
        let nobody = || Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
        error.of_one_server(self.owner(slot).map_or_else(nobody, |node| node.outage()))
    }

    /// The primaries, and whether they are asked.
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

    fn named(self: Arc<Self>, redirection: &RedisError, answering: &Address) -> Option<Arc<Node>> {
        let (address, _) = redirection.redirect_node()?;
        self.node(&Address::read(address, answering)?).ok()
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

fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}
