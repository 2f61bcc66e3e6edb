//! Where decisions are made: on one server, or on the primaries of a Cluster.
//!
//! This is the only place outside `cluster/` and `builder/` in which calls differ for a Cluster: one server is treated
//! as a Cluster whose slots are all slot 0.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

#[cfg(feature = "cluster")]
use super::cluster::{Cluster, slot_of};
use super::pipeline::{Asking, Job, JobReply, NoReply, Server, Settings, SettledReply};
use crate::core::Error;
use crate::store::{BreakerState, Check};

/// How long after its timeout a caller stops waiting for a runtime that was given to the store, and may not run. Usually
/// that ends the wait.
const GRACE: Duration = Duration::from_millis(5);

/// One server, or many that share the keys by slots.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    /// It has every key; all are in slot 0.
    One(Arc<Server>),
    /// Each primary has the keys of its slots.
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
}

/// The wait for a reply.
pub(super) enum PendingReply {
    /// That of the one server, on the connection of the calling runtime: no future around it.
    Server(Asking),
    Other(Pin<Box<dyn Future<Output = Result<JobReply, NoReply>> + Send>>),
}

impl Future for PendingReply {
    type Output = Result<JobReply, NoReply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Server(asking) => Pin::new(asking).poll(cx),
            Self::Other(asking) => asking.as_mut().poll(cx),
        }
    }
}

#[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "one server has every slot"))]
impl Servers {
    /// Returns the slot of a key in Redis; 0 on one server.
    pub(super) fn slot_of(&self, redis_key: impl AsRef<[u8]>) -> u16 {
        match self {
            Self::One(_) => 0,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => slot_of(redis_key.as_ref()),
        }
    }

    /// Returns whether all checks are surely over keys of one slot, without computing any: on a
    /// Cluster those over one key of a client are. If not, they may still be.
    pub(super) fn keep_together(&self, checks: &[Check]) -> bool {
        match self {
            Self::One(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => checks.windows(2).all(|two| two[0].counter.key() == two[1].counter.key()),
        }
    }

    /// Asks the server that has the slot of a request.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no server has the slot, its circuit breaker is open, there is no runtime, or the
    /// server refuses the request.
    ///
    /// # Cancellation
    ///
    /// As of [`Asking`]. Nothing is sent before the first poll.
    pub(super) fn ask(&self, job: Box<Job>) -> PendingReply {
        if let Self::One(server) = self
            && server.settings().runtime.is_none()
            && let Ok(here) = Handle::try_current()
        {
            return PendingReply::Server(server.ask_by(&here, job));
        }
        let (servers, timeout, has_runtime) = (self.clone(), job.timeout, self.settings().runtime.is_some());
        PendingReply::Other(Box::pin(async move {
            let end = timeout.until + GRACE;
            match servers {
                // What was sent may still be decided.
                Self::One(server) if has_runtime => {
                    let mut asking = server.ask(job)?;
                    let replied = timeout_at(end, &mut asking).await.map_err(|_| timeout.error());
                    replied.unwrap_or_else(|error| Err(NoReply { late: Some(asking), ..error.into() }))
                }
                Self::One(server) => server.ask(job)?.await,
                #[cfg(feature = "cluster")]
                Self::Cluster(cluster) if has_runtime => {
                    timeout_at(end, cluster.ask(job)).await.unwrap_or_else(|_| Err(timeout.error().into()))
                }
                #[cfg(feature = "cluster")]
                Self::Cluster(cluster) => cluster.ask(job).await,
            }
        }))
    }

    /// Sends a settlement in the background, after those that the same runtime sent before, and again while the server
    /// surely does not do it. Returns what receives the result, which may be dropped.
    ///
    /// # Errors
    ///
    /// If too many are on their way, or no server has the slot.
    pub(super) fn settle(&self, job: Box<Job>) -> Result<oneshot::Receiver<SettledReply>, Error> {
        match self {
            Self::One(server) => server.settle(job),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.settle(job),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        match self {
            Self::One(server) => server.settings(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.settings(),
        }
    }

    /// Returns the error of a call for a slot that would fail, as its primary's circuit breaker is open.
    /// One server has no circuit breaker here, as that of its layer does the same.
    pub(super) fn breaker_error(&self, slot: u16) -> Option<Error> {
        match self {
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breaker_error(slot),
        }
    }

    /// Returns the primaries of a Cluster and the states of their circuit breakers; empty for one
    /// server.
    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One(_) => Vec::new(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breakers(),
        }
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// If the server, or every node of the Cluster, cannot be reached, or one refuses what it is sent.
    pub(super) async fn prepare(&self) -> Result<(), Error> {
        match self {
            Self::One(server) => server.prepare().await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.prepare().await,
        }
    }
}
