//! The nodes, and what is known of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};
use tokio::time::Instant;

use super::address::Address;
use super::looks::Looks;
use super::map::Map;
use super::node::Node;
use super::primary::Primary;
use crate::core::Error;
use crate::store::redis::batch::{Lanes, Plan};
use crate::store::redis::connections::{Pools, Server};

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

    /// How long a node may take that is connected to, shows that it is a Redis, and is asked.
    pub(super) fn longest_look(&self) -> Duration {
        self.pools.connect_timeout.saturating_mul(3)
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
            let others = Arc::downgrade(self);
            let primary = Primary { node: node.clone(), address: address.clone(), others, source };
            Node::new(address.clone(), self.plan.lanes(Arc::new(primary)))
        }))
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
