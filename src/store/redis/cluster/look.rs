//! Looking up the slots: `CLUSTER SLOTS`, sent to one node after the other until one replies.
//!
//! A failure or a redirection comes in (`look_again`), or a decision of a store without known nodes (`find`), or a
//! store that connects (`prepare`); a new map goes out. Except for that of `prepare`, a look runs in a task of its own
//! and ends with its runtime, so a caller that is cancelled does not cancel it for the others. Circuit breakers do not
//! forbid a look: a node that cannot decide can often name the one that can.
//!
//! A failover must be noticed fast, and a Cluster in trouble must not be flooded with `CLUSTER SLOTS`, though each failed
//! decision wants a look:
//!
//! - one look at a time, unless that takes longer than 500 ms: the thread that it runs on may be blocked;
//! - none for 50 ms after one that found the slots or was dropped, and for 500 ms after one that found nothing.
//!
//! Looks are numbered as they begin, so that a late result of an early one does not replace that of a later one.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinSet;
use tokio::time::{self, timeout_at};

use super::looks::{Look, PAUSE};
use super::map::{Map, Range, read_ranges};
use super::node::Address;
use super::route::Cluster;
use crate::core::error::Kind;
use crate::core::random;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::redis::pipeline::{Job, JobReply, NoReply, Timeout};

/// Limits how often `slots_unknown` is logged.
static UNKNOWN: Lines = Lines::ten();

impl Cluster {
    /// Looks up the slots in the background, unless that was just done. The node that failed is
    /// called last.
    pub(super) fn look_again(self: &Arc<Self>, failed: Option<&Address>) {
        self.begin_to_look(failed, self.budget);
    }

    /// Begins a look in a task of its own, in which each node may take `limit`. Does nothing
    /// outside a runtime, or if it is too early for another look.
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

    /// Returns whether no primary is known, as at first after a lazy start.
    pub(super) fn is_unknown(&self) -> bool {
        self.map.load().nodes().is_empty()
    }

    /// Looks up the primaries, and connects to them. That some do not respond is logged.
    ///
    /// # Errors
    ///
    /// If no node returns the slots, or a primary cannot be used.
    pub(in crate::store::redis) async fn prepare(self: &Arc<Self>) -> Result<(), Error> {
        let limit = self.longest_look();
        // A new store has not looked before.
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

    /// Returns how long one node may take to be connected to, to show that it is a Redis, and to
    /// return the slots, when a caller waits for them: three connect timeouts.
    fn longest_look(&self) -> Duration {
        self.connect.timeout.saturating_mul(3)
    }

    /// Waits until primaries are known, a look finds none, or the timeout is over; after one that found none, not at all
    /// for a moment. The look itself is not cancelled with its caller.
    pub(super) async fn find(self: &Arc<Self>, timeout: Timeout) {
        let looking = async {
            loop {
                let ended = self.looks.ended.notified();
                self.begin_to_look(None, self.longest_look());
                if !self.is_unknown() || self.looks.is_lost() {
                    return;
                }
                // The one that is under way may be held up.
                let _ = time::timeout(PAUSE, ended).await;
            }
        };
        let _ = timeout_at(timeout.until, looking).await;
    }

    /// Calls one node after the other for the slots, each for so long at most, until one returns
    /// them. If a later look was faster, its map stays.
    ///
    /// # Errors
    ///
    /// The error of the last node, if none returns the slots.
    async fn look(self: &Arc<Self>, look: &Look, failed: Option<&Address>, limit: Duration) -> Result<(), Error> {
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

    /// Returns every known address, the nodes' in random order and then the seeds', except that nodes whose circuit
    /// breaker is not closed come late, and the one that failed last.
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

    /// Returns the slots as one node reports them. The node is kept, with the connection that was
    /// made for this.
    ///
    /// # Errors
    ///
    /// If it does not reply in time, or is no node of a Cluster.
    async fn ranges(self: &Arc<Self>, address: &Address, limit: Duration) -> Result<Vec<Range>, Error> {
        let node = self.node(address);
        let command = cmd("CLUSTER").arg("SLOTS").take();
        // Whatever the circuit breaker says: a node that cannot decide can often name the one that can.
        let asked = node.server.ask(Job::command(command, Timeout::new(limit), 0))?.await;
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

    /// Replaces the map by one of these ranges. Nodes that are still there are kept with their
    /// connections; the others are dropped.
    fn replace_map(self: &Arc<Self>, ranges: Vec<Range>) {
        let mut map = Map::empty();
        for (slots, address) in ranges {
            let node = map.node(&address).unwrap_or_else(|| self.node(&address));
            map.give(slots, &node);
        }
        self.map.store(Arc::new(map));
    }
}

/// Returns the error of a server that has no slots.
fn no_cluster() -> Error {
    Error::new(Kind::Store, "it returned no slots: is it a node of a Redis Cluster?")
}
