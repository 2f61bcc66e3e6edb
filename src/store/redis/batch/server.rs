//! The server that a lane leads to, as a trait.
//!
//! A lane connects, sends and receives; everything that differs between a single server
//! and a primary of a Redis Cluster is behind [`Server`]: where to connect to, whether a circuit
//! breaker permits a call, and what a refusal means. `OneServer` is here; the primary is in
//! `redis/cluster/`.
//!
//! The order of calls is: `acquire` before connecting or before a call, then `report` once with that
//! permit and the outcome. A permit that is not used is returned by `report` with `Failure::Unsent`,
//! so that a breaker waits for no probe that was never sent.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::RedisError;

use super::job::Job;
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::connections::{Failure, Link, Source, is_lost, is_redirection};

/// A connection attempt. The lane sets it no limit of its own and drops it when it ends.
pub(in crate::store::redis) type Connecting = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send>>;

/// The result of [`Server::redirect`] for jobs that a server refused.
#[derive(Debug)]
pub(in crate::store::redis) enum Redirected {
    /// Another server has taken them.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server has every slot"))]
    Elsewhere,
    /// They are sent again to this server, each alone.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server has every slot"))]
    Later(Vec<Job>),
    /// They fail with the refusal.
    Failed(Vec<Job>),
}

/// One server: how it is connected to, whether it may be called, and what its refusals mean.
///
/// Methods are called by the runner at work on a lane, and from `Drop`; they must not block. By
/// default there is no breaker and no other server.
pub(in crate::store::redis) trait Server: fmt::Debug + Send + Sync + 'static {
    /// Makes a connection, ready for use. Called for one attempt at a time by each lane.
    fn connect(&self) -> Connecting;

    /// Returns the permit for a call or a connection attempt; `None` where the server has no
    /// breaker.
    ///
    /// # Errors
    ///
    /// If the breaker is open: the server failed too often a moment ago.
    fn acquire(&self) -> Result<Option<Permit>, Error> {
        Ok(None)
    }

    /// Returns whether the outcome of what a permit was acquired for still counts. It does not once the breaker has
    /// opened or closed since.
    fn counts(&self, permit: Permit) -> bool {
        let _ = permit;
        true
    }

    /// Reports the outcome of what a permit was acquired for, once for each: `failure` is `None` if the
    /// server replied with a decision.
    fn report(&self, permit: Option<Permit>, failure: Option<&Failure>) {
        let _ = (permit, failure);
    }

    /// Counts a failure of jobs that waited for a whole budget and were never sent, for which there
    /// is no permit.
    fn waited(&self) {}

    /// Returns whether an error means that the connection has ended, or returned something else
    /// than a reply to what was sent. Redirections do, by default, as a single server redirects no
    /// calls.
    fn is_lost(&self, error: &RedisError) -> bool {
        // One server that has all keys redirects no calls.
        is_lost(error) || is_redirection(error)
    }

    /// Handles jobs that the server refused, and moves them if another server is to decide them.
    fn redirect(&self, jobs: Vec<Job>, refusal: &RedisError) -> Redirected {
        let _ = refusal;
        Redirected::Failed(jobs)
    }

    /// Moves a job that was not sent to the server that has its slot now; returns it if that is this
    /// one.
    fn again(&self, job: Job) -> Option<Job> {
        Some(job)
    }

    /// Returns the error as one of this server, which then has the state of its breaker, so that
    /// the layer counts no failure of one server for all.
    fn error(&self, error: Error) -> Error {
        error
    }
}

/// One server that has every key: at an address, or the primary that sentinels name. It has no
/// breaker of its own, as the layer's is enough.
#[derive(Debug)]
pub(super) struct OneServer {
    /// Where connections come from.
    source: Arc<Source>,
}

impl OneServer {
    /// A server that `source` connects to.
    pub(super) fn new(source: Source) -> Self {
        Self { source: Arc::new(source) }
    }
}

impl Server for OneServer {
    fn connect(&self) -> Connecting {
        let source = Arc::clone(&self.source);
        Box::pin(async move { source.take().await })
    }
}
