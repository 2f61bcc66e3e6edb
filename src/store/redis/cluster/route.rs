//! Nodes of a Cluster, and routing and redirection of requests.
//!
//! A node, with its connections and circuit breaker, is kept as long as it has slots or slots are being moved to it.
//! When a request cannot be sent, the slots are refreshed in the background, because another primary may have them.
//! Errors contain their server's outage, so that a layer's circuit breaker does not count them against the whole
//! Cluster.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::looks::RefreshLimiter;
use super::map::Map;
use super::node::{Address, Node, Primary};
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::breaker::{CallPermit, Outage};
use crate::store::redis::connections::{ConnSource, Connect, Failure, Origin, is_of_a_replica, moved_to};
use crate::store::redis::pipeline::{
    Job, JobReply, NoReply, NotGranted, Server, Settings, SettledReply, Unsettled, Watch,
};
use crate::store::redis::wire::Way;

/// Pause before a request is sent again if its keys are on both nodes of a moving slot.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// Bounds the redirections between nodes that disagree.
const MAX_HOPS: u8 = 8;

enum Follow {
    To(Arc<Node>),
    Owner,
    /// Send it to the owner after a pause.
    Later,
    Nobody,
}

pub(in crate::store::redis) struct Cluster {
    /// Addresses of the URLs, which stay candidates because all known nodes may be gone.
    pub(super) seeds: Vec<Address>,
    /// The first URL, whose settings apply to all nodes.
    login: ConnectionInfo,
    pub(super) connect: Connect,
    pub(super) settings: Arc<Settings>,
    /// Timeout of a decision, and of a node in a background refresh.
    pub(super) budget: Duration,
    start: Instant,
    pub(super) map: ArcSwap<Map>,
    pub(super) looks: Arc<RefreshLimiter>,
}

static UNSENT: Lines = Lines::new();

impl Cluster {
    pub(in crate::store::redis) fn new(
        known: &[ConnectionInfo],
        connect: Connect,
        settings: Arc<Settings>,
        budget: Duration,
    ) -> Result<Arc<Self>, Error> {
        let Some(login) = known.first().cloned() else {
            return Err(Error::invalid("no URL of a Redis Cluster node was given: at least one is needed"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster cannot use a Unix socket: use host:port"))?;
        if let Some(reason) = known.iter().find_map(|node| differs(&login, node)) {
            return Err(Error::invalid(format!(
                "the URLs of a Cluster's nodes differ in {reason}: all are used as the first"
            )));
        }
        let (map, looks, start) = (ArcSwap::from_pointee(Map::empty()), Arc::default(), Instant::now());
        Ok(Arc::new(Self { seeds, login, connect, settings, budget, start, map, looks }))
    }

    pub(in crate::store::redis) async fn ask(self: &Arc<Self>, mut job: Box<Job>) -> Result<JobReply, NoReply> {
        if self.is_unknown() {
            self.find(job.timeout).await;
        }
        let (timeout, mut next) = (job.timeout, None);
        loop {
            let Some(node) = next.take().or_else(|| self.owner(job.slot)) else {
                self.look_again(None);
                // The outage is as old as the store. With a short outage, layers would allow requests, for as long as
                // no primary is known.
                let outage = Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
                return Err(no_primary().for_one_server(outage).into());
            };
            let Node { primary, server } = &*node;
            let permit = primary.acquire().inspect_err(|_| self.look_again(Some(&primary.address)))?;
            job.permit = Some(permit);
            let of_node = |error: Error| error.for_one_server(primary.outage());
            let mut caller = Caller(Some((primary, permit)));
            let result = server.ask(job)?.await;
            caller.0 = None;
            let (error, refused) = match result {
                Ok(part) => return Ok(part),
                Err(NoReply { error, refused: Some(refused), .. }) => (error, *refused),
                Err(no_reply) => return Err(NoReply { error: of_node(no_reply.error), ..no_reply }),
            };
            let NotGranted { cause, job: mut refused } = refused;
            match self.follow(&primary.address, &cause, &mut refused) {
                Follow::To(other) => next = Some(other),
                Follow::Owner => {}
                Follow::Later if Instant::now() + SLOT_PAUSE < timeout.until => {
                    sleep_until(Instant::now() + SLOT_PAUSE).await;
                    // Before Redis 7, a node redirects such a request to the other node, which has it wait.
                    refused.hops = 0;
                }
                Follow::Later => {
                    sleep_until(timeout.until).await;
                    return Err(of_node(timeout.error()).into());
                }
                Follow::Nobody => return Err(of_node(error).into()),
            }
            job = refused;
        }
    }

    fn follow(self: &Arc<Self>, from: &Address, cause: &RedisError, job: &mut Job) -> Follow {
        let ErrorKind::Server(kind) = cause.kind() else { return Follow::Nobody };
        job.way = Way::Plain;
        match kind {
            ServerErrorKind::Moved | ServerErrorKind::Ask if job.hops < MAX_HOPS => {
                job.hops += 1;
                let named = cause.redirect_node().and_then(|(address, _)| Address::read(address, from));
                let Some(other) = named.map(|address| self.node(&address)) else { return Follow::Nobody };
                if kind == ServerErrorKind::Ask {
                    self.keep(&other);
                    job.way = Way::Asking;
                } else {
                    self.change_map(|map| map.give(job.slot..=job.slot, &other));
                    self.look_again(None);
                }
                Follow::To(other)
            }
            // The keys are on both nodes. If it was batched, its own keys may be on one of them.
            ServerErrorKind::TryAgain if job.is_alone => Follow::Later,
            ServerErrorKind::TryAgain => {
                job.is_alone = true;
                Follow::Owner
            }
            _ => {
                let is_down = matches!(kind, ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown);
                if is_down || is_of_a_replica(cause) {
                    self.look_again(Some(from));
                }
                Follow::Nobody
            }
        }
    }

    /// Sends a settlement in the background. Without a primary for the slot, it is logged, not sent.
    pub(in crate::store::redis) fn settle(
        self: &Arc<Self>,
        job: Box<Job>,
    ) -> Result<oneshot::Receiver<SettledReply>, Error> {
        let Some(owner) = self.owner(job.slot) else {
            self.look_again(None);
            UNSENT.log("", |more| {
                tracing::warn!(code = "settlement_unsent", more, "settlement not sent, no primary has its slot");
            });
            return Err(no_primary().unsent());
        };
        owner.server.settle(job)
    }

    pub(in crate::store::redis) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(in crate::store::redis) fn breaker_error(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.primary.is_callable())?;
        // Another primary may have the slot now.
        self.look_again(Some(&node.primary.address));
        Some(node.primary.breaker_error())
    }

    pub(in crate::store::redis) fn breakers(&self) -> Vec<(String, BreakerState)> {
        let states = |node: &Arc<Node>| (node.primary.address.to_string(), node.primary.state());
        let mut states: Vec<_> = self.map.load().nodes().iter().map(states).collect();
        states.sort_unstable_by(|(address, _), (other, _)| address.cmp(other));
        states
    }

    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot)
    }

    fn known(&self, address: &Address) -> Option<Arc<Node>> {
        self.map.load().node(address)
    }

    /// Returns the known node, or a new one, which is neither in the map nor connected.
    pub(super) fn node(self: &Arc<Self>, address: &Address) -> Arc<Node> {
        self.known(address).unwrap_or_else(|| {
            let server = moved_to(&self.login, address.host.clone(), address.port);
            let source = ConnSource { connect: self.connect.clone(), origin: Origin::Server(server) };
            let primary = Arc::new(Primary::new(address.clone()));
            let watch = PrimaryWatch { primary: Arc::clone(&primary), cluster: Arc::downgrade(self) };
            let server = Server::new(Arc::new(source), Arc::clone(&self.settings), Some(Arc::new(watch)));
            Arc::new(Node { primary, server })
        })
    }

    /// Adds a node to which slots are being moved, so that its connection is kept until the next refresh.
    pub(super) fn keep(&self, node: &Arc<Node>) {
        if self.known(&node.primary.address).is_none() {
            self.change_map(|map| _ = map.keep(node));
        }
    }

    fn change_map(&self, change: impl Fn(&mut Map)) {
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            change(&mut map);
            map
        });
    }
}

/// Releases the permit if the caller leaves. Otherwise the connection reports the outcome.
struct Caller<'a>(Option<(&'a Primary, CallPermit)>);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some((primary, permit)) = self.0 {
            primary.gave_up(permit);
        }
    }
}

/// Held by connections with unsent settlements, which outlive the store.
struct PrimaryWatch {
    primary: Arc<Primary>,
    cluster: Weak<Cluster>,
}

impl Watch for PrimaryWatch {
    fn report(&self, permit: CallPermit, failure: Option<&Failure>) {
        self.primary.report(permit, failure);
        if let (Some(Failure::NotConnected(_) | Failure::Late), Some(cluster)) = (failure, self.cluster.upgrade()) {
            // Another primary may have the slots now.
            cluster.look_again(Some(&self.primary.address));
        }
    }

    fn may_redirect(&self) -> bool {
        true
    }

    fn settle_again(&self, mut settlement: Unsettled) -> Option<Unsettled> {
        let Some(cluster) = self.cluster.upgrade() else { return Some(settlement) };
        let mut next = None;
        match settlement.cause.take().map(|cause| cluster.follow(&self.primary.address, &cause, &mut settlement.job)) {
            Some(Follow::To(other)) => next = Some(other),
            Some(Follow::Owner | Follow::Later) => {}
            // The node was unreachable, or cannot decide now. Another primary may have its slots.
            Some(Follow::Nobody) | None => cluster.look_again(Some(&self.primary.address)),
        }
        let next = next.or_else(|| cluster.owner(settlement.job.slot)).or_else(|| cluster.known(&self.primary.address));
        let Some(next) = next else { return Some(settlement) };
        next.server.settle_by(settlement.job, settlement.settler);
        None
    }
}

fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}

/// Returns a setting of `node` that would be ignored, because all nodes use the settings of the first.
fn differs(first: &ConnectionInfo, node: &ConnectionInfo) -> Option<&'static str> {
    let is_encrypted = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let login = |info: &ConnectionInfo| {
        let settings = info.redis_settings();
        settings.password().map(|password| (settings.username().map(str::to_owned), password.to_owned()))
    };
    if is_encrypted(first) != is_encrypted(node) {
        return Some("redis:// and rediss://");
    }
    login(node).filter(|of_node| Some(of_node) != login(first).as_ref()).map(|_| "their user or password")
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
