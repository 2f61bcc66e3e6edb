//! Streams that a closure opens.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::link::not_connected;
use super::own_task::OwnTasks;
use crate::core::Error;

/// A stream, of whatever kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// Opens streams to hosts and ports.
#[derive(Clone)]
pub(in crate::store::redis) struct Dialer {
    dial: Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>,
    tasks: OwnTasks,
}

impl Dialer {
    /// Streams that a closure opens, in tasks of its own.
    pub(in crate::store::redis) fn new<F, T, S>(dial: F, tasks: OwnTasks) -> Self
    where
        F: Fn(String, u16) -> T + Send + Sync + 'static,
        T: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let dial = move |host, port| -> Dialing {
            let dialing = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Duplex>) })
        };
        Self { dial: Arc::new(dial), tasks }
    }

    /// Opens a stream to a host's port.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn Duplex>, Error> {
        let (dial, host) = (Arc::clone(&self.dial), host.to_owned());
        let dialed = self.tasks.run(move || dial(host, port)).await;
        dialed.map_err(not_connected)?.map_err(not_connected)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
