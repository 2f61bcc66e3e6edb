//! One server.

use deadpool_redis::redis::ConnectionAddr;

use super::credentials::Login;
use super::dial::Dialer;
use super::link::{Connecting, Connector, Link};
use super::stream;
use super::tls::Encryption;
use crate::core::Error;

/// A server at an address that does not change.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Server {
    pub(super) address: ConnectionAddr,
    pub(super) login: Login,
    pub(super) encryption: Encryption,
    /// Who opens streams to it, if not this crate.
    pub(super) dialer: Option<Dialer>,
}

impl Server {
    pub(super) async fn open(&self) -> Result<Link, Error> {
        let login = self.login.next().await?;
        stream::open(&self.address, &login, &self.encryption, self.dialer.as_ref()).await
    }

    /// The same server but for its host and port.
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

impl Connector for Server {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(self.open())
    }
}
