//! The nodes, and what is known of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, Value, cmd};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::connection::{Connections, Source};
use super::super::patience::Patience;
use super::super::pool::Pools;
use super::super::script::Calls;
use super::map::{Address, Map, Node, Range, read_ranges};
use crate::Error;
use crate::error::Kind;

/// The least time between two questions for the slots.
const PAUSE: Duration = Duration::from_millis(50);

/// The primaries, each with a connection of its own.
pub(in crate::store::redis) struct Cluster {
    seeds: Vec<Address>,
    /// Of the first seed: how all nodes are connected to, but for the address.
    login: ConnectionInfo,
    pools: Pools,
    budget: Duration,
    map: ArcSwap<Map>,
    /// One asks for the slots at a time.
    looking: Arc<Semaphore>,
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
        Ok(Self { seeds, login, pools, budget, map, looking })
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
        Ok(Arc::new(Node { address: address.clone(), connections: Connections::new(Source::Server(pool)) }))
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

    /// Asks for the slots in the background, unless that was just done. Who failed is asked last.
    pub(super) fn look_again(self: &Arc<Self>, failed: Option<Address>) {
        let Ok(turn) = Arc::clone(&self.looking).try_acquire_owned() else { return };
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = cluster.look(failed.as_ref(), cluster.budget).await {
                tracing::warn!(error = format!("{error:#}"), "no node of the Redis Cluster tells its slots");
            }
            tokio::time::sleep(PAUSE).await;
            drop(turn);
        });
    }

    /// Asks one node after the other for the slots, each for so long at most.
    async fn look(&self, failed: Option<&Address>, limit: Duration) -> Result<(), Error> {
        let mut error = None;
        for address in self.to_ask(failed) {
            match self.ranges(&address, limit).await {
                Ok(ranges) => return self.learn(ranges),
                Err(failed) => error = Some(failed),
            }
        }
        Err(error.unwrap_or_else(|| Error::new(Kind::Connection, "no node of the Redis Cluster is known")))
    }

    /// Every known address, in any order but that the one that failed is last.
    fn to_ask(&self, failed: Option<&Address>) -> Vec<Address> {
        let mut addresses: Vec<Address> = self.map.load().nodes().iter().map(|node| node.address.clone()).collect();
        fastrand::shuffle(&mut addresses);
        let others: Vec<_> = self.seeds.iter().filter(|seed| !addresses.contains(seed)).cloned().collect();
        addresses.extend(others);
        addresses.sort_by_key(|address| Some(address) == failed);
        addresses
    }

    async fn ranges(&self, address: &Address, limit: Duration) -> Result<Vec<Range>, Error> {
        let node = self.node(address)?;
        let patience = Patience::new(limit);
        let told: Value = node
            .connections
            .ask(patience, async |connection| cmd("CLUSTER").arg("SLOTS").query_async(connection).await)
            .await
            .map_err(|failure| match patience.told(failure) {
                refused if refused.is_store() => no_cluster().with_source(refused),
                error => error,
            })?;
        let ranges = read_ranges(&told, address).filter(|ranges| !ranges.is_empty());
        self.keep(&node);
        ranges.ok_or_else(no_cluster)
    }

    /// Keeps the nodes that are still there, with their connections.
    fn learn(&self, ranges: Vec<Range>) -> Result<(), Error> {
        let mut map = Map::empty();
        for (slots, address) in ranges {
            let node = map.node(&address).map_or_else(|| self.node(&address), Ok)?;
            map.give(slots, &node);
        }
        self.map.store(Arc::new(map));
        Ok(())
    }
}

fn no_cluster() -> Error {
    Error::new(Kind::Store, "it tells no slots: is it a node of a Redis Cluster?")
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
