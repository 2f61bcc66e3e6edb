//! Refresh of the slot map: `CLUSTER SLOTS`, sent to one node after the other until one replies.
//!
//! A refresh runs in its own task and ends with its runtime, so that a cancelled caller does not cancel it for others.
//! Only `prepare` runs it in the caller. Circuit breakers do not prevent a refresh, because a node that cannot decide
//! can often name the one that can.
//!
//! A failover must be noticed fast. But each failed decision starts a refresh, and a Cluster in trouble must not be
//! flooded with `CLUSTER SLOTS`. So the rules are:
//!
//! - one refresh at a time, unless it takes longer than 500 ms: its thread may be blocked
//! - none for 50 ms after a refresh that found the slots or was dropped, and for 500 ms after one that found nothing
//!
//! Refreshes are numbered by their start, so that a late result of an early refresh does not replace a newer map.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinSet;
use tokio::time::{self, timeout_at};

use super::looks::{PAUSE, RefreshPermit};
use super::map::{Map, Range, read_ranges};
use super::node::Address;
use super::route::Cluster;
use crate::core::error::Kind;
use crate::core::random;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::redis::pipeline::{Job, JobReply, NoReply, Timeout};

static UNKNOWN: Lines = Lines::ten();

impl Cluster {
    /// Starts a refresh unless one was just made. The node that failed is called last.
    pub(super) fn look_again(self: &Arc<Self>, failed: Option<&Address>) {
        self.begin_to_look(failed, self.budget);
    }

    /// Each node may take `limit`. Outside of a runtime, or too early, no refresh begins.
    fn begin_to_look(self: &Arc<Self>, failed: Option<&Address>, limit: Duration) {
        let here = Runtime::try_current().ok();
        let Some(runtime) = self.settings.runtime.as_ref().or(here.as_ref()) else { return };
        let Some(look) = self.looks.begin() else { return };
        let (cluster, failed) = (Arc::clone(self), failed.cloned());
        runtime.spawn(async move {
            let looked = cluster.look(&look, failed.as_ref(), limit).await;
            let was_lost = look.end(looked.is_ok());
            if let (Err(error), false) = (&looked, was_lost) {
                UNKNOWN.log("", |more| {
                    let error = format!("{error:#}");
                    tracing::warn!(code = "slots_unknown", error, more, "no node of the Cluster returned its slots");
                });
            }
        });
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.map.load().nodes().is_empty()
    }

    pub(in crate::store::redis) async fn prepare(self: &Arc<Self>) -> Result<(), Error> {
        let limit = self.longest_look();
        // It is `None` only after another refresh, and a new store has made none.
        let Some(look) = self.looks.begin() else { return Ok(()) };
        let looked = self.look(&look, None, limit).await;
        look.end(looked.is_ok());
        looked?;
        let mut connecting = JoinSet::new();
        for node in self.map.load().nodes() {
            let node = Arc::clone(node);
            connecting.spawn(async move { time::timeout(limit, node.server.prepare()).await });
        }
        while let Some(connected) = connecting.join_next().await {
            match connected {
                Ok(Ok(Err(error))) if error.is_store() => return Err(error),
                Ok(Ok(Ok(()))) => {}
                _ => tracing::warn!(code = "scripts_later", "primary did not respond, connecting later"),
            }
        }
        Ok(())
    }

    fn longest_look(&self) -> Duration {
        self.connect.timeout.saturating_mul(3)
    }

    /// Waits for a primary until the timeout, or until a refresh finds none.
    pub(super) async fn find(self: &Arc<Self>, timeout: Timeout) {
        let looking = async {
            loop {
                let ended = self.looks.ended.notified();
                self.begin_to_look(None, self.longest_look());
                if !self.is_unknown() || self.looks.is_lost() {
                    return;
                }
                // That refresh may be stuck.
                let _ = time::timeout(PAUSE, ended).await;
            }
        };
        let _ = timeout_at(timeout.until, looking).await;
    }

    /// Calls nodes until one returns the slots. A newer map is kept.
    async fn look(
        self: &Arc<Self>,
        look: &RefreshPermit,
        failed: Option<&Address>,
        limit: Duration,
    ) -> Result<(), Error> {
        let mut error = None;
        for address in self.candidates(failed) {
            match self.ranges(&address, limit).await {
                Ok(ranges) => {
                    if look.is_news() {
                        self.replace_map(ranges);
                    }
                    return Ok(());
                }
                Err(failed) => error = Some(failed),
            }
        }
        Err(error.unwrap_or_else(|| Error::new(Kind::Connection, "no node of the Redis Cluster is known")))
    }

    /// Nodes in random order, then seeds. Nodes with an open circuit breaker are late, and the failed node is last.
    fn candidates(&self, failed: Option<&Address>) -> Vec<Address> {
        let map = self.map.load();
        let mut addresses: Vec<Address> = map.nodes().iter().map(|node| node.primary.address.clone()).collect();
        addresses.extend(self.seeds.iter().filter(|seed| map.node(seed).is_none()).cloned());
        addresses.sort_by_cached_key(|address| {
            let node = map.node(address);
            let is_failing = node.as_ref().is_some_and(|node| node.primary.state() != BreakerState::Closed);
            (Some(address) == failed, is_failing, node.is_none(), node.map_or(0, |_| random::up_to(u64::MAX)))
        });
        addresses
    }

    async fn ranges(self: &Arc<Self>, address: &Address, limit: Duration) -> Result<Vec<Range>, Error> {
        let node = self.node(address);
        let command = cmd("CLUSTER").arg("SLOTS").take();
        // Not subject to the circuit breaker: a node that cannot decide can often name the one that can.
        let asked = node.server.ask(Job::command(command, None, Timeout::new(limit), 0))?.await;
        let slots = match asked {
            Ok(JobReply::Command(slots)) => slots,
            Ok(JobReply::Script(_)) => return Err(no_cluster()),
            Err(NoReply { error, .. }) if error.is_store() => return Err(no_cluster().with_source(error)),
            Err(NoReply { error, .. }) => return Err(error),
        };
        let ranges = read_ranges(&slots, address).filter(|ranges| !ranges.is_empty());
        self.keep(&node);
        ranges.ok_or_else(no_cluster)
    }

    fn replace_map(self: &Arc<Self>, ranges: Vec<Range>) {
        let mut map = Map::empty();
        for (slots, address) in ranges {
            let node = map.node(&address).unwrap_or_else(|| self.node(&address));
            map.give(slots, &node);
        }
        self.map.store(Arc::new(map));
    }
}

fn no_cluster() -> Error {
    Error::new(Kind::Store, "it returned no slots: is it a node of a Redis Cluster?")
}
