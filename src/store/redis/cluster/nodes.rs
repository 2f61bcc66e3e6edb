//! The nodes of a Cluster, and their state.
//!
//! Addresses come in, from the URLs and from the Cluster; nodes with their lanes go out. A node is
//! kept as long as it has slots, or slots are being moved to it: its connections and its circuit
//! breaker live as long as it does. Readers of the map never wait. A redirection changes one entry
//! of it by compare and swap; a look at the slots replaces the whole.

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

/// The primaries, each with lanes of its own. All clones of a store share it.
pub(in crate::store::redis) struct Cluster {
    /// The addresses of the URLs. They are tried besides the known nodes, as all of those may be
    /// gone.
    pub(super) seeds: Vec<Address>,
    /// How all nodes are connected to, but for the address: as the first URL has it.
    login: Server,
    /// How their pools are made.
    pools: Pools,
    /// How their lanes are made.
    pub(super) plan: Plan,
    /// How long one decision may take, and a node to reply with the slots in the background.
    pub(super) budget: Duration,
    /// When the store was made.
    pub(super) start: Instant,
    /// Which node has which slot, as it was found last.
    pub(super) map: ArcSwap<Map>,
    /// When the slots are looked up.
    pub(super) looks: Arc<Looks>,
    /// Whether no node returned the slots when they were looked up last. It is logged once until
    /// one does.
    pub(super) is_lost: AtomicBool,
}

impl Cluster {
    /// Returns a Cluster of which some nodes are known. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If no node is given, one is a Unix socket, or the pools' size is 0.
    pub(in crate::store::redis) fn new(
        known: &[ConnectionInfo],
        pools: Pools,
        plan: Plan,
        budget: Duration,
    ) -> Result<Arc<Self>, Error> {
        let Some(login) = known.first().map(|first| pools.server(first)) else {
            return Err(Error::invalid("no URL of a Redis Cluster node was given: give at least one"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster cannot use a Unix socket: give host:port"))?;
        pools.check()?;
        let (map, looks) = (ArcSwap::from_pointee(Map::empty()), Looks::new());
        let (start, is_lost) = (Instant::now(), AtomicBool::new(false));
        Ok(Arc::new(Self { seeds, login, pools, plan, budget, start, map, looks, is_lost }))
    }

    /// Returns how long one node may take to be connected to, to show that it is a Redis, and to
    /// return the slots, when a caller waits for them: three connect timeouts.
    pub(super) fn longest_look(&self) -> Duration {
        self.pools.connect_timeout.saturating_mul(3)
    }

    /// Returns the primary that has a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot)
    }

    /// Returns the lanes to the primary that has a slot, if it is known.
    pub(in crate::store::redis) fn lanes(&self, slot: u16) -> Option<Lanes> {
        self.owner(slot).map(|owner| owner.lanes.clone())
    }

    /// Returns the node at an address: the one that is known, or a new one, which is not in the map
    /// yet.
    ///
    /// A new one is connected to as the first URL has it, but at its own address. Its lanes are
    /// made when they are used, so a node that is never called has no connection.
    ///
    /// # Errors
    ///
    /// If its pool cannot be made.
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

    /// Adds a node to which slots are being moved to the map, so that its connection is kept until
    /// the slots are looked up again.
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

/// Returns the host and the port of a URL, or `None` for a Unix socket.
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
