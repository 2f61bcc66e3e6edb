//! Streams that a closure of the application opens.
//!
//! A host and a port come in, as the URL or the Cluster names them and unresolved; a stream goes
//! out, on which TLS and the login work as on TCP. The closure runs in a task of its own
//! (`own_task.rs`), so that it can panic without ending the connection's task.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::failure::not_connected;
use super::own_task::own_task;
use crate::core::Error;

/// A stream of bytes in both directions, of whatever kind.
pub(in crate::store::redis) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A stream that is being opened.
type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// Opens streams to hosts and ports: [`dial`](crate::store::RedisStoreBuilder::dial).
#[derive(Clone)]
pub(in crate::store::redis) struct Dialer {
    /// The closure, whose streams are boxed: their type is the application's.
    dial: Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>,
}

impl Dialer {
    /// Returns a dialer that calls a closure, in tasks of its own.
    pub(in crate::store::redis) fn new<F, T, S>(dial: F) -> Self
    where
        F: Fn(String, u16) -> T + Send + Sync + 'static,
        T: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let dial = move |host, port| -> Dialing {
            let dialing = dial(host, port);
            Box::pin(async move { Ok(Box::new(dialing.await?) as Box<dyn Duplex>) })
        };
        Self { dial: Arc::new(dial) }
    }

    /// Opens a stream to a host's port.
    ///
    /// # Errors
    ///
    /// If the closure returns an error or panics: the error is one of the connection.
    ///
    /// # Cancellation
    ///
    /// The closure's future is dropped where it awaits something.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn Duplex>, Error> {
        let (dial, host) = (Arc::clone(&self.dial), host.to_owned());
        let dialed = own_task(move || dial(host, port)).await;
        dialed.map_err(not_connected)?.map_err(not_connected)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
