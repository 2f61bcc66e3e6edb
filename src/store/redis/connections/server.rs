//! One server: where it is, and how a connection to it is opened.
//!
//! This is the connector of a single server, of a Cluster's nodes and of sentinels alike; nodes and
//! primaries that are found later differ from a known one in host and port only.

use deadpool_redis::redis::ConnectionAddr;

use super::credentials::Login;
use super::dial::Dialer;
use super::link::Opened;
use super::stream;
use super::tls::Encryption;
use crate::core::Error;

/// A server at an address that does not change.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Server {
    /// Where it listens, and whether the stream is encrypted.
    pub(super) address: ConnectionAddr,
    /// Who the connection logs in as, and in which database.
    pub(super) login: Login,
    /// How the server proves its identity, if the address says that the stream is encrypted.
    pub(super) encryption: Encryption,
    /// What opens streams to it, if the application does so. Not used for Unix sockets.
    pub(super) dialer: Option<Dialer>,
}

impl Server {
    /// Opens a connection and logs in. The credentials are fetched for each connection.
    ///
    /// # Errors
    ///
    /// If there are no credentials, or the server cannot be reached or refuses the login. It does
    /// not end by itself if the server never responds: callers bound it.
    pub(super) async fn open(&self) -> Result<Opened, Error> {
        let login = self.login.next().await?;
        stream::open(&self.address, &login, &self.encryption, self.dialer.as_ref()).await
    }

    /// Returns the same server but for its host and port. A server on a Unix socket becomes one on
    /// TCP.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(in crate::store::redis) fn moved_to(&self, host: String, port: u16) -> Self {
        let address = match self.address.clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self { address, ..self.clone() }
    }
}
