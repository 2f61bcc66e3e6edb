//! The nodes, and what is known of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::looks::Looks;
use super::map::{Address, Map};
use super::node::Node;
use super::server::Primary;
use crate::Error;
use crate::store::redis::batch::{Lanes, Plan};
use crate::store::redis::connections::{Patience, Pools, Server};
use crate::store::redis::wire::Calls;

/// The primaries, each with a connection of its own.
pub(in crate::store::redis) struct Cluster {
    pub(super) seeds: Vec<Address>,
    /// Of the first seed: how all nodes are connected to, but for the address.
    login: Server,
    pools: Pools,
    pub(super) plan: Plan,
    pub(super) budget: Duration,
    pub(super) start: Instant,
    pub(super) map: ArcSwap<Map>,
    pub(super) looks: Arc<Looks>,
    /// Whether no node told the slots when they were last asked for.
    pub(super) is_lost: AtomicBool,
}

impl Cluster {
    /// A Cluster of which some nodes are known. Nothing is asked yet.
    pub(in crate::store::redis) fn new(
        known: &[ConnectionInfo],
        pools: Pools,
        plan: Plan,
        budget: Duration,
    ) -> Result<Arc<Self>, Error> {
        let Some(login) = known.first().map(|first| pools.server(first)) else {
            return Err(Error::invalid("a Cluster is not found without a URL: give at least one"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster is not reached by a socket file: give host:port"))?;
        pools.check()?;
        let (map, looks) = (ArcSwap::from_pointee(Map::empty()), Looks::new());
        let (start, is_lost) = (Instant::now(), AtomicBool::new(false));
        Ok(Arc::new(Self { seeds, login, pools, plan, budget, start, map, looks, is_lost }))
    }

    /// Finds the primaries, and loads what is called on those that are up; others get it with the
    /// first call.
    pub(in crate::store::redis) async fn prepare(self: &Arc<Self>, calls: Calls) -> Result<(), Error> {
        let limit = self.longest_look();
        self.look(self.looks.number(), None, limit).await?;
        let mut loading = JoinSet::new();
        for node in self.map.load().nodes() {
            let node = Arc::clone(node);
            loading.spawn(
                async move { tokio::time::timeout(limit, node.lanes.prepare(calls, Patience::new(limit))).await },
            );
        }
        while let Some(loaded) = loading.join_next().await {
            match loaded {
                Ok(Ok(Err(error))) if error.is_store() => return Err(error),
                Ok(Ok(Ok(()))) => {}
                _ => tracing::warn!("a primary of the Redis Cluster does not answer"),
            }
        }
        Ok(())
    }

    /// How long a node may take that is connected to, shows that it is a Redis, and is asked.
    pub(super) fn longest_look(&self) -> Duration {
        self.pools.connect_timeout.saturating_mul(3)
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.load().nodes().to_vec()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot)
    }

    /// The lanes to the primary that has a slot.
    pub(in crate::store::redis) fn lanes(&self, slot: u16) -> Option<Lanes> {
        self.owner(slot).map(|owner| owner.lanes.clone())
    }

    /// The node at an address: the one that is known, or a new one.
    pub(super) fn node(self: &Arc<Self>, address: &Address) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.map.load().node(address) {
            return Ok(node);
        }
        let source = self.pools.of_server(self.login.moved_to(address.host.clone(), address.port))?;
        Ok(Arc::new_cyclic(|node| {
            let source = Arc::new(source);
            let cluster = Arc::downgrade(self);
            let primary = Primary { node: node.clone(), address: address.clone(), cluster, source };
            Node::new(address.clone(), self.plan.lanes(Arc::new(primary)))
        }))
    }

    /// Notes that a slot is another node's by now.
    pub(super) fn moved(&self, slot: u16, node: &Arc<Node>) {
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            map.give(slot..=slot, node);
            map
        });
    }

    /// Keeps the connection of a node to which slots are on their way.
    pub(super) fn keep(&self, node: &Arc<Node>) {
        if self.map.load().node(&node.address).is_none() {
            self.map.rcu(|map| {
                let mut map = Map::clone(map);
                map.keep(node);
                map
            });
        }
    }
}

fn address_of(info: &ConnectionInfo) -> Option<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Address { host: host.clone(), port: *port })
        }
        _ => None,
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}
