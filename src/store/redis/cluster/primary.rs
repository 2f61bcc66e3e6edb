//! A primary as the server of its lanes: whether it is called, and where refused jobs are moved.
//!
//! Results of calls come in from a lane; reports to the node's circuit breaker and jobs for other
//! nodes go out. A lane is independent of slots and other nodes: this is its `Server`, and
//! accesses the others through the trait `Others` only. All references to nodes are weak here, as a
//! node owns its lanes, and those own this.

use std::fmt;
use std::sync::{Arc, Weak};

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::Address;
use super::node::Node;
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::batch::{Connecting, Job, Redirected, Server};
use crate::store::redis::connections::{Failure, Source, is_lost, is_of_the_connection};
use crate::store::redis::wire::Way;

/// How often a job is sent on by redirections at most: nodes that disagree do not redirect it for
/// long.
const MOST_HOPS: u8 = 8;

/// One primary, as the server of its lanes.
pub(super) struct Primary {
    /// The node. It is gone once it has no slots any more; its lanes may live on for what is in
    /// flight.
    pub(super) node: Weak<Node>,
    /// Where it listens.
    pub(super) address: Address,
    /// The Cluster; gone with the store.
    pub(super) others: Weak<dyn Others>,
    /// Where its connections come from.
    pub(super) source: Arc<Source>,
}

/// The Cluster as a primary uses it: the other nodes, and which one has which slot.
pub(super) trait Others: Send + Sync {
    /// Returns the primary that has a slot, if it is known.
    fn owner(&self, slot: u16) -> Option<Arc<Node>>;

    /// Returns the node that a redirection of the node at `from` names, which may be new.
    /// `None` if it names none.
    fn named(self: Arc<Self>, redirection: &RedisError, from: &Address) -> Option<Arc<Node>>;

    /// Notes that a slot is another node's by now.
    fn moved(&self, slot: u16, node: &Arc<Node>);

    /// Keeps the connection of a node to which slots are being moved.
    fn keep(&self, node: &Arc<Node>);

    /// Looks up the slots in the background, unless that was just done. The node that failed is
    /// called last.
    fn look_again(self: Arc<Self>, failed: Option<Address>);
}

impl Server for Primary {
    /// Takes a new connection from the node's source.
    fn connect(&self) -> Connecting {
        let source = Arc::clone(&self.source);
        Box::pin(async move { source.take().await })
    }

    /// Returns the circuit breaker's permit, or why no call is made. A node that is gone is called
    /// without one.
    fn acquire(&self) -> Result<Option<Permit>, Error> {
        self.node.upgrade().map(|node| node.acquire()).transpose()
    }

    fn counts(&self, permit: Permit) -> bool {
        self.node.upgrade().is_none_or(|node| node.counts(permit))
    }

    /// Counts the result of a call. If the node could not be connected to, or did not respond, the
    /// slots are looked up again.
    fn report(&self, permit: Option<Permit>, failure: Option<&Failure>) {
        let (Some(node), Some(permit)) = (self.node.upgrade(), permit) else { return };
        node.report(permit, failure);
        if let (Some(Failure::NotConnected(_) | Failure::Late), Some(others)) = (failure, self.others.upgrade()) {
            // Another one may have its slots by now.
            others.look_again(Some(node.address.clone()));
        }
    }

    /// Counts a failure of jobs that timed out before they were sent.
    fn waited(&self) {
        if let Some(node) = self.node.upgrade() {
            node.waited();
        }
    }

    /// Returns whether the connection has ended or is out of step. Redirections are none of that
    /// here.
    fn is_lost(&self, error: &RedisError) -> bool {
        is_lost(error)
    }

    /// Sends jobs to the node that has their slot, by the table in the module above this one. Jobs
    /// that no redirection concerns have failed.
    fn redirect(&self, jobs: Vec<Job>, refusal: &RedisError) -> Redirected {
        let Some(others) = self.others.upgrade() else { return Redirected::Failed(jobs) };
        match refusal.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => match Arc::clone(&others).named(refusal, &self.address) {
                Some(owner) => {
                    for job in &jobs {
                        others.moved(job.slot, &owner);
                    }
                    others.look_again(None);
                    send_on(jobs, &owner, Way::Plain)
                }
                None => Redirected::Failed(jobs),
            },
            ErrorKind::Server(ServerErrorKind::Ask) => match Arc::clone(&others).named(refusal, &self.address) {
                Some(next) => {
                    others.keep(&next);
                    send_on(jobs, &next, Way::Asking)
                }
                None => Redirected::Failed(jobs),
            },
            // Some of the keys are here, and some are not: those of one job may all be.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Redirected::Later(jobs),
            kind => {
                if is_down(kind) || is_of_the_connection(refusal) {
                    others.look_again(Some(self.address.clone()));
                }
                Redirected::Failed(jobs)
            }
        }
    }

    /// Sends a job that has to be repeated to the primary that has its slot by now, without
    /// `ASKING`. Returns the job if that is still this one, or no primary can take it: the lane
    /// keeps it then.
    fn again(&self, mut job: Job) -> Option<Job> {
        let Some(others) = self.others.upgrade() else { return Some(job) };
        job.way = Way::Plain;
        match others.owner(job.slot) {
            Some(owner) if !std::ptr::eq(Arc::as_ptr(&owner), self.node.as_ptr()) => owner.lanes.push(job).err(),
            _ => Some(job),
        }
    }

    /// Returns an error with the outage of this node.
    fn error(&self, error: Error) -> Error {
        match self.node.upgrade() {
            Some(node) => error.of_one_server(node.outage()),
            None => error,
        }
    }
}

/// Sends jobs to another node; those that were sent on too often, or that it cannot take, have
/// failed.
fn send_on(jobs: Vec<Job>, node: &Arc<Node>, way: Way) -> Redirected {
    let mut failed = Vec::new();
    for mut job in jobs {
        job.tries += 1;
        job.way = way;
        if job.tries >= MOST_HOPS {
            failed.push(job);
        } else if let Err(job) = node.lanes.push(job) {
            failed.push(job);
        }
    }
    if failed.is_empty() { Redirected::Elsewhere } else { Redirected::Failed(failed) }
}

/// Returns whether the node says that the Cluster, or its own primary, is down.
fn is_down(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown))
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Primary").field("address", &self.address).finish_non_exhaustive()
    }
}
