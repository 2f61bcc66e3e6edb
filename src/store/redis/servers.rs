//! One server or a Cluster.
//!
//! Except for `cluster/` and `builder/`, only this module distinguishes the two: one server is a Cluster in which every
//! key has slot 0.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Timeout, timeout_at};

#[cfg(feature = "cluster")]
use super::cluster::{Cluster, slot_of};
use super::pipeline::{Asking, Job, JobReply, NoReply, Server, Settings, SettledReply};
use crate::core::Error;
use crate::store::{BreakerState, Check};

/// Time after the timeout at which a caller stops waiting for the store's own runtime, because that may not run.
const GRACE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub(super) enum Servers {
    One(Arc<Server>),
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
}

pub(super) enum PendingReply {
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
    pub(super) fn slot_of(&self, redis_key: impl AsRef<[u8]>) -> u16 {
        match self {
            Self::One(_) => 0,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => slot_of(redis_key.as_ref()),
        }
    }

    /// Returns `true` if all keys are certainly in one slot. Hashes no key, so on `false` they may be in one slot, too.
    pub(super) fn keep_together(&self, checks: &[Check]) -> bool {
        match self {
            Self::One(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => checks.windows(2).all(|two| two[0].counter.key() == two[1].counter.key()),
        }
    }

    /// Like [`ask`](Self::ask) and, if it is to a server on the caller's runtime, the first poll.
    pub(super) fn begin(&self, job: Job, cx: &Context<'_>) -> Result<PendingReply, Error> {
        match self.here() {
            Some((server, here)) => server.begin(&here, job, cx).map(PendingReply::Server),
            None => Ok(self.ask(Box::new(job))),
        }
    }

    fn here(&self) -> Option<(&Server, Handle)> {
        if let Self::One(server) = self
            && server.settings().runtime.is_none()
            && let Ok(here) = Handle::try_current()
        {
            return Some((server, here));
        }
        None
    }

    /// Nothing is sent before the first poll. Cancellation is as for [`Asking`].
    pub(super) fn ask(&self, job: Box<Job>) -> PendingReply {
        if let Some((server, here)) = self.here() {
            return PendingReply::Server(server.ask_by(&here, job));
        }
        let (servers, timeout, runtime) = (self.clone(), job.timeout, self.settings().runtime.clone());
        PendingReply::Other(Box::pin(async move {
            let end = timeout.until + GRACE;
            match (servers, runtime) {
                // What was sent may still be decided.
                (Self::One(server), Some(runtime)) => {
                    let mut asking = server.ask(job)?;
                    let replied = by(&runtime, end, &mut asking).await.map_err(|_| timeout.error());
                    replied.unwrap_or_else(|error| Err(NoReply { late: Some(asking), ..error.into() }))
                }
                (Self::One(server), None) => server.ask(job)?.await,
                #[cfg(feature = "cluster")]
                (Self::Cluster(cluster), Some(runtime)) => {
                    by(&runtime, end, cluster.ask(job)).await.unwrap_or_else(|_| Err(timeout.error().into()))
                }
                #[cfg(feature = "cluster")]
                (Self::Cluster(cluster), None) => cluster.ask(job).await,
            }
        }))
    }

    /// Sends a settlement after those of the same runtime, and again while it was certainly not executed. The receiver
    /// may be dropped.
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

    /// Always `None` for one server, because its layer has a circuit breaker.
    pub(super) fn breaker_error(&self, slot: u16) -> Option<Error> {
        match self {
            Self::One(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breaker_error(slot),
        }
    }

    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One(_) => Vec::new(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.breakers(),
        }
    }

    pub(super) async fn prepare(&self) -> Result<(), Error> {
        match self {
            Self::One(server) => server.prepare().await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.prepare().await,
        }
    }
}

/// The timer is of the caller's runtime, if it has one, because the store's may not run.
fn by<F: Future>(runtime: &Handle, end: Instant, future: F) -> Timeout<F> {
    let _entered = Handle::try_current().is_err().then(|| runtime.enter());
    timeout_at(end, future)
}
