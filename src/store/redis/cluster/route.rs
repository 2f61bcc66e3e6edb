//! The nodes of a Cluster, and the way of requests to the primaries of their slots, and of those that one redirects.
//!
//! A node is kept as long as it has slots, or slots are being moved to it: its connections and its circuit breaker live
//! as long as it does. Whenever a request cannot be sent, the slots are looked up again in the background, as another
//! primary may have them by now. Errors contain the outage of the server that they come from, so that a layer's own
//! circuit breaker does not count them against the whole Cluster.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::looks::Looks;
use super::map::Map;
use super::node::{Address, Node, Primary};
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::breaker::{Outage, Permit};
use crate::store::redis::connections::{ConnSource, Connect, Failure, Origin, is_of_a_replica, moved_to};
use crate::store::redis::pipeline::{
    Job, JobReply, NoReply, Refused, Server, Settings, SettledReply, Unsettled, Watch,
};
use crate::store::redis::wire::Way;

/// The pause before a request is sent again some of whose keys are on either side of a slot that moves.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// How often a request is sent on by redirections at most: nodes that disagree do not redirect it for long.
const MOST_HOPS: u8 = 8;

/// Where a request goes that a node has refused.
enum Follow {
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
    login: ConnectionInfo,
    pub(super) connect: Connect,
    /// How calls are made.
    pub(super) settings: Arc<Settings>,
    /// How long one decision may take, and a node to reply with the slots in the background.
    pub(super) budget: Duration,
    /// When the store was made.
    start: Instant,
    /// Which node has which slot, as it was found last.
    pub(super) map: ArcSwap<Map>,
    /// When the slots are looked up.
    pub(super) looks: Arc<Looks>,
}

/// Limits how often `settlement_unsent` is logged.
static UNSENT: Lines = Lines::new();

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
        let Some(login) = known.first().cloned() else {
            return Err(Error::invalid("no URL of a Redis Cluster node was given: give at least one"));
        };
        let seeds: Option<Vec<Address>> = known.iter().map(address_of).collect();
        let seeds = seeds.ok_or_else(|| Error::invalid("a Cluster cannot use a Unix socket: give host:port"))?;
        if let Some(reason) = known.iter().find_map(|node| differs(&login, node)) {
            return Err(Error::invalid(format!(
                "the URLs of a Cluster's nodes differ in {reason}: all are used as the first"
            )));
        }
        let (map, looks, start) = (ArcSwap::from_pointee(Map::empty()), Arc::default(), Instant::now());
        Ok(Arc::new(Self { seeds, login, connect, settings, budget, start, map, looks }))
    }

    /// Asks the primary that has the slot of a request, and those to which it is redirected.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no primary has the slot, its circuit breaker is open, there is no runtime, or it
    /// refuses the request.
    pub(in crate::store::redis) async fn ask(self: &Arc<Self>, mut job: Box<Job>) -> Result<JobReply, NoReply> {
        if self.is_unknown() {
            self.find(job.timeout).await;
        }
        let (timeout, mut next) = (job.timeout, None);
        loop {
            let Some(node) = next.take().or_else(|| self.owner(job.slot)) else {
                self.look_again(None);
                // It counts as having failed since the store was made: requests must not be admitted, as through a
                // short failure, for as long as that lasts.
                let outage = Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
                return Err(no_primary().of_one_server(outage).into());
            };
            let Node { primary, server } = &*node;
            let permit = primary.acquire().inspect_err(|_| self.look_again(Some(&primary.address)))?;
            job.permit = Some(permit);
            let of_node = |error: Error| error.of_one_server(primary.outage());
            let mut caller = Caller(Some((primary, permit)));
            let result = server.ask(job)?.await;
            caller.0 = None;
            let (error, refused) = match result {
                Ok(part) => return Ok(part),
                Err(NoReply { error, refused: Some(refused), .. }) => (error, *refused),
                Err(no_reply) => return Err(NoReply { error: of_node(no_reply.error), ..no_reply }),
            };
            let Refused { cause, job: mut refused } = refused;
            match self.follow(&primary.address, &cause, &mut refused) {
                Follow::To(other) => next = Some(other),
                Follow::Owner => {}
                Follow::Later if Instant::now() + SLOT_PAUSE < timeout.until => {
                    sleep_until(Instant::now() + SLOT_PAUSE).await;
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
            ServerErrorKind::Moved | ServerErrorKind::Ask if job.hops < MOST_HOPS => {
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
            // Some of the keys are here, and some are not: those of one request may all be.
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

    /// Sends a settlement to the primary that has its slot, in the background. Returns what receives the result.
    ///
    /// # Errors
    ///
    /// If no primary has the slot, which is logged, or too many settlements are on their way to it.
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

    /// Returns the error of a call for a slot if its primary's circuit breaker is open and no probe
    /// is due.
    pub(in crate::store::redis) fn breaker_error(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.primary.is_callable())?;
        // Another one may have the slot by now.
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

    /// Returns the node at an address: the one that is known, or a new one, which is not in the map yet.
    ///
    /// A new one is connected to as the first URL has it, but at its own address, when it is called first.
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

    /// Adds a node to which slots are being moved to the map, so that its connection is kept until
    /// the slots are looked up again.
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

/// Who waits for a call to a primary, with its permit until there is a result, which the connection reports.
struct Caller<'a>(Option<(&'a Primary, Permit)>);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some((primary, permit)) = self.0 {
            primary.gave_up(permit);
        }
    }
}

/// Is told of the calls to a primary. Its connections hold it, which outlive the store by what they have yet to send.
struct PrimaryWatch {
    primary: Arc<Primary>,
    /// Gone with the store.
    cluster: Weak<Cluster>,
}

impl Watch for PrimaryWatch {
    fn report(&self, permit: Permit, failure: Option<&Failure>) {
        self.primary.report(permit, failure);
        if let (Some(Failure::NotConnected(_) | Failure::Late), Some(cluster)) = (failure, self.cluster.upgrade()) {
            // Another one may have its slots by now.
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
            // It could not be reached, or is of no use now: another one may have its slots.
            Some(Follow::Nobody) | None => cluster.look_again(Some(&self.primary.address)),
        }
        let next = next.or_else(|| cluster.owner(settlement.job.slot)).or_else(|| cluster.known(&self.primary.address));
        let Some(next) = next else { return Some(settlement) };
        next.server.settle_by(settlement.job, settlement.settler);
        None
    }
}

/// Returns the error of a slot that no known primary has.
fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}

/// Returns the host and the port of a URL, or `None` for a Unix socket.
/// Returns what the URL of a node has that would not be used, as all nodes are connected to as the first one.
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
