//! A primary as its lanes know it: whether it is asked, and where it sends what it refuses.

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

/// How often a job follows a redirection: nodes that disagree do not send it to and fro for long.
const MOST_HOPS: u8 = 8;

/// A primary as its lanes know it.
pub(super) struct Primary {
    /// It may have no slots any more, and be forgotten.
    pub(super) node: Weak<Node>,
    pub(super) address: Address,
    pub(super) others: Weak<dyn Others>,
    pub(super) source: Arc<Source>,
}

/// What a primary knows of the others.
pub(super) trait Others: Send + Sync {
    /// The primary that has a slot.
    fn owner(&self, slot: u16) -> Option<Arc<Node>>;

    /// The node that a redirection names.
    fn named(self: Arc<Self>, redirection: &RedisError, answering: &Address) -> Option<Arc<Node>>;

    /// Notes that a slot is another node's by now.
    fn moved(&self, slot: u16, node: &Arc<Node>);

    /// Keeps the connection of a node to which slots are on their way.
    fn keep(&self, node: &Arc<Node>);

    /// Asks for the slots in the background, unless that was just done. Who failed is asked last.
    fn look_again(self: Arc<Self>, failed: Option<Address>);
}

impl Server for Primary {
    fn connect(&self) -> Connecting {
        let source = Arc::clone(&self.source);
        Box::pin(async move { source.take().await })
    }

    fn ask(&self) -> Result<Option<Permit>, Error> {
        self.node.upgrade().map(|node| node.ask()).transpose()
    }

    fn learn(&self, permit: Option<Permit>, failure: Option<&Failure>) {
        let (Some(node), Some(permit)) = (self.node.upgrade(), permit) else { return };
        node.learn(permit, failure);
        if let (Some(Failure::NotConnected(_) | Failure::Late), Some(others)) = (failure, self.others.upgrade()) {
            // Another one may have its slots by now.
            others.look_again(Some(node.address.clone()));
        }
    }

    fn waited(&self) {
        if let Some(node) = self.node.upgrade() {
            node.waited();
        }
    }

    fn is_lost(&self, error: &RedisError) -> bool {
        is_lost(error)
    }

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

    fn again(&self, mut job: Job) -> Option<Job> {
        let Some(others) = self.others.upgrade() else { return Some(job) };
        job.way = Way::Plain;
        match others.owner(job.slot) {
            Some(owner) if !std::ptr::eq(Arc::as_ptr(&owner), self.node.as_ptr()) => owner.lanes.push(job).err(),
            _ => Some(job),
        }
    }

    fn error(&self, error: Error) -> Error {
        match self.node.upgrade() {
            Some(node) => error.of_one_server(node.outage()),
            None => error,
        }
    }
}

/// Sends jobs to another node; those that were sent on too often have failed.
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

fn is_down(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown))
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Primary").field("address", &self.address).finish_non_exhaustive()
    }
}
