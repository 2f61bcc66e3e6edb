//! The nodes of a Cluster, and their state.
//!
//! Addresses come in, from the URLs and from the Cluster; nodes with their connections go out. A node is
//! kept as long as it has slots, or slots are being moved to it: its connections and its circuit
//! breaker live as long as it does. Readers of the map never wait. A redirection changes one entry
//! of it by compare and swap; a look at the slots replaces the whole.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};
use tokio::time::Instant;

use super::address::Address;
use super::looks::Looks;
use super::map::Map;
use super::node::Node;
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::connections::{Connect, Failure, Server as Login, is_of_a_replica};
use crate::store::redis::pipeline::{Job, Server, Settings, Unsettled, Watch};
use crate::store::redis::wire::Way;

/// How often a request is sent on by redirections at most: nodes that disagree do not redirect it for long.
const MOST_HOPS: u8 = 8;

/// Where a request goes that a node has refused.
pub(super) enum Follow {
    /// To this node.
    To(Arc<Node>),
    /// To the owner of its slot.
    Owner,
    /// The same after a pause.
    Later,
    /// It failed.
    Nobody,
}

/// The primaries, each with connections of its own. All clones of a store share it.
pub(in crate::store::redis) struct Cluster {
    /// The addresses of the URLs. They are tried besides the known nodes, as all of those may be
    /// gone.
    pub(super) seeds: Vec<Address>,
    /// How all nodes are connected to, but for the address: as the first URL has it.
    login: Login,
    connect: Connect,
    /// How calls are made.
    pub(super) settings: Arc<Settings>,
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
    /// If no node is given, or one is a Unix socket.
    pub(in crate::store::redis) fn new(
        known: &[ConnectionInfo],
        connect: Connect,
        settings: Arc<Settings>,
        budget: Duration,
    ) -> Result<Arc<Self>, Error> {
        let Some(login) = known.first().map(|first| connect.server(first)) else {
            return Err(Error::invalid("no URL of a Redis Cluster node was given: give at least one"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster cannot use a Unix socket: give host:port"))?;
        let (map, looks) = (ArcSwap::from_pointee(Map::empty()), Looks::new());
        let (start, is_lost) = (Instant::now(), AtomicBool::new(false));
        Ok(Arc::new(Self { seeds, login, connect, settings, budget, start, map, looks, is_lost }))
    }

    /// Returns how long one node may take to be connected to, to show that it is a Redis, and to
    /// return the slots, when a caller waits for them: three connect timeouts.
    pub(super) fn longest_look(&self) -> Duration {
        self.connect.timeout.saturating_mul(3)
    }

    /// Returns the primary that has a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot)
    }

    /// Returns the node at an address: the one that is known, or a new one, which is not in the map
    /// yet.
    ///
    /// A new one is connected to as the first URL has it, but at its own address, when it is called first.
    pub(super) fn node(self: &Arc<Self>, address: &Address) -> Arc<Node> {
        if let Some(node) = self.map.load().node(address) {
            return node;
        }
        let source = Arc::new(self.connect.to_server(self.login.moved_to(address.host.clone(), address.port)));
        Arc::new_cyclic(|node| {
            let primary = Arc::new(Primary { node: node.clone(), cluster: Arc::downgrade(self) });
            Node::new(address.clone(), Server::new(source, Arc::clone(&self.settings), Some(primary)))
        })
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

    /// Returns where a request goes that a node has refused, by the table in the module above this one.
    pub(super) fn follow(self: &Arc<Self>, node: &Arc<Node>, cause: &RedisError, job: &mut Job) -> Follow {
        let ErrorKind::Server(kind) = cause.kind() else { return Follow::Nobody };
        job.way = Way::Plain;
        match kind {
            ServerErrorKind::Moved | ServerErrorKind::Ask if job.hops < MOST_HOPS => {
                job.hops += 1;
                let named = cause.redirect_node().and_then(|(address, _)| Address::read(address, &node.address));
                let Some(other) = named.map(|address| self.node(&address)) else { return Follow::Nobody };
                if kind == ServerErrorKind::Ask {
                    self.keep(&other);
                    job.way = Way::Asking;
                } else {
                    self.moved(job.slot, &other);
                    self.look_again(None);
                }
                Follow::To(other)
            }
            // Some of the keys are here, and some are not: those of one request may all be.
            ServerErrorKind::TryAgain if job.is_alone => Follow::Later,
            ServerErrorKind::TryAgain => {
                job.is_alone = true;
                Follow::Owner
            }
            _ => {
                let is_down = matches!(kind, ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown);
                if is_down || is_of_a_replica(cause) {
                    self.look_again(Some(node.address.clone()));
                }
                Follow::Nobody
            }
        }
    }

    /// Notes that a slot is another node's by now.
    fn moved(&self, slot: u16, node: &Arc<Node>) {
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            map.give(slot..=slot, node);
            map
        });
    }
}

/// A node, as its connections see it. The references are weak, as the node owns its connections.
struct Primary {
    node: Weak<Node>,
    /// Gone with the store.
    cluster: Weak<Cluster>,
}

impl Watch for Primary {
    /// Counts the result of a call. If the node could not be connected to, or did not reply, the slots are looked up
    /// again.
    fn report(&self, permit: Permit, failure: Option<&Failure>) {
        let Some(node) = self.node.upgrade() else { return };
        node.report(permit, failure);
        if let (Some(Failure::NotConnected(_) | Failure::Late), Some(cluster)) = (failure, self.cluster.upgrade()) {
            // Another one may have its slots by now.
            cluster.look_again(Some(node.address.clone()));
        }
    }

    fn waited(&self) {
        if let Some(node) = self.node.upgrade() {
            node.waited();
        }
    }

    fn may_redirect(&self) -> bool {
        true
    }

    fn settle_again(&self, mut settlement: Unsettled) -> Option<Unsettled> {
        let (Some(cluster), node) = (self.cluster.upgrade(), self.node.upgrade()) else { return Some(settlement) };
        let mut next = None;
        if let Some(node) = &node {
            match settlement.cause.take().map(|cause| cluster.follow(node, &cause, &mut settlement.job)) {
                Some(Follow::To(other)) => next = Some(other),
                Some(Follow::Owner | Follow::Later) => {}
                // It could not be reached, or is of no use now: another one may have its slots.
                Some(Follow::Nobody) | None => cluster.look_again(Some(node.address.clone())),
            }
        }
        let Some(next) = next.or_else(|| cluster.owner(settlement.job.slot)).or(node) else { return Some(settlement) };
        next.server.settle(settlement.job, settlement.settler);
        None
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
