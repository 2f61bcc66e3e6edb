//! The nodes, and what is known of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::connection::{Connections, Source};
use super::super::pool::Pools;
use super::super::script::Calls;
use super::map::{Address, Map};
use super::node::Node;
use crate::Error;

/// The primaries, each with a connection of its own.
pub(in crate::store::redis) struct Cluster {
    pub(super) seeds: Vec<Address>,
    /// Of the first seed: how all nodes are connected to, but for the address.
    login: ConnectionInfo,
    pools: Pools,
    pub(super) budget: Duration,
    pub(super) start: Instant,
    pub(super) map: ArcSwap<Map>,
    /// One asks for the slots at a time.
    pub(super) looking: Arc<Semaphore>,
    /// Whether no node told the slots when they were last asked for.
    pub(super) is_lost: AtomicBool,
}

impl Cluster {
    /// A Cluster of which some nodes are known. Nothing is asked yet.
    pub(in crate::store::redis) fn new(
        known: &[ConnectionInfo],
        pools: Pools,
        budget: Duration,
    ) -> Result<Self, Error> {
        let Some(login) = known.first().cloned() else {
            return Err(Error::invalid("a Cluster is not found without a URL: give at least one"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster is not reached by a socket file: give host:port"))?;
        let (map, looking) = (ArcSwap::from_pointee(Map::empty()), Arc::new(Semaphore::new(1)));
        let (start, is_lost) = (Instant::now(), AtomicBool::new(false));
        Ok(Self { seeds, login, pools, budget, start, map, looking, is_lost })
    }

    /// Finds the primaries, and loads what is called on those that are up; others get it with the
    /// first call.
    pub(in crate::store::redis) async fn prepare(&self, calls: Calls) -> Result<(), Error> {
        self.look(None, self.pools.connect_timeout).await?;
        let mut loading = JoinSet::new();
        for node in self.map.load().nodes() {
            let (node, limit) = (Arc::clone(node), self.pools.connect_timeout);
            loading.spawn(async move { tokio::time::timeout(limit, node.connections.prepare(calls)).await });
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

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.load().nodes().to_vec()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot)
    }

    /// The node at an address: the one that is known, or a new one.
    pub(super) fn node(&self, address: &Address) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.map.load().node(address) {
            return Ok(node);
        }
        let (host, port) = (address.host.clone(), address.port);
        let place = match self.login.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let pool = self.pools.of_server(self.login.clone().set_addr(place))?;
        Ok(Arc::new(Node::new(address.clone(), Connections::new(Source::Server(pool)))))
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
