//! Jobs that find their node.

use std::sync::Arc;

use deadpool_redis::redis::RedisError;
use tokio::runtime::Id;

use super::map::Address;
use super::node::Node;
use super::nodes::Cluster;
use crate::Error;
use crate::core::error::Kind;
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
            return Err(self.told(job.slot, no_primary()));
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

    /// The node that a redirection names.
    pub(super) fn named(self: &Arc<Self>, redirection: &RedisError, answering: &Address) -> Option<Arc<Node>> {
        let (address, _) = redirection.redirect_node()?;
        self.node(&Address::read(address, answering)?).ok()
    }
}

fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}
