//! What a lane leads to.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::RedisError;

use super::job::Job;
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::connections::{Failure, Link, Source, is_lost, is_redirection};

/// A connection that is being made.
pub(in crate::store::redis) type Connecting = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send>>;

/// What becomes of jobs that a server refused.
#[derive(Debug)]
pub(in crate::store::redis) enum Redirected {
    /// Another server answers them.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server has every slot"))]
    Elsewhere,
    /// They are asked again here, each alone.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server has every slot"))]
    Later(Vec<Job>),
    /// They have failed.
    Failed(Vec<Job>),
}

/// One server: how it is connected to, whether it is asked, and what its refusals mean.
pub(in crate::store::redis) trait Server: fmt::Debug + Send + Sync + 'static {
    /// Makes a connection.
    fn connect(&self) -> Connecting;

    /// Leave to make a call; or why it is not made.
    ///
    /// # Errors
    ///
    /// If the server failed too often a moment ago.
    fn ask(&self) -> Result<Option<Permit>, Error> {
        Ok(None)
    }

    /// Learns what became of a call: once for each.
    fn learn(&self, permit: Option<Permit>, failure: Option<&Failure>) {
        let _ = (permit, failure);
    }

    /// Counts a failure of those who waited and were not sent.
    fn waited(&self) {}

    /// Whether an error says that the connection has ended, or answered something else than was asked.
    fn is_lost(&self, error: &RedisError) -> bool {
        // One server that has all keys sends nobody elsewhere.
        is_lost(error) || is_redirection(error)
    }

    /// Takes over jobs that the server refused as another one is to answer them.
    fn redirect(&self, jobs: Vec<Job>, refusal: &RedisError) -> Redirected {
        let _ = refusal;
        Redirected::Failed(jobs)
    }

    /// Takes over a job that is asked again; returns it if it is to be asked here.
    fn again(&self, job: Job) -> Option<Job> {
        Some(job)
    }

    /// The error as one of this server.
    fn error(&self, error: Error) -> Error {
        error
    }
}

/// One server, which has every key: at an address, or the primary that sentinels name. Whether it is asked is for the layer's breaker to say.
#[derive(Debug)]
pub(super) struct OneServer {
    source: Arc<Source>,
}

impl OneServer {
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
