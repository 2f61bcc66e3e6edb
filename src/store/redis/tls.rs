//! How an encrypted server proves who it is, and this process to it.

use deadpool_redis::redis::Client;
#[cfg(feature = "tls")]
use deadpool_redis::redis::{ClientTlsConfig, ConnectionAddr, TlsCertificates};
#[cfg(feature = "tls")]
use rustls::crypto::{CryptoProvider, ring};
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, pem::PemObject};

#[cfg(feature = "tls")]
use super::RedisStoreBuilder;
use crate::Error;

/// Certificates and keys; without any, the system's root certificates count.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    #[cfg(feature = "tls")]
    root: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    identity: Option<ClientTlsConfig>,
}

#[cfg(feature = "tls")]
impl RedisStoreBuilder {
    /// Believes servers whose certificates these roots vouch for, and no others, instead of the
    /// system's roots: one or more certificates as PEM, for `rediss://` URLs.
    ///
    /// The certificate must be for the host in the URL, be it a name or an address.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.root = Some(pem.into());
        self
    }

    /// Shows servers a certificate that asks for one: its chain, and its private key, each as PEM.
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(ClientTlsConfig { client_cert: chain.into(), client_key: key.into() });
        self
    }
}

#[cfg(not(feature = "tls"))]
impl Tls {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the feature `tls` has use for both")]
    pub(super) fn applied_to(&self, client: Client) -> Result<Client, Error> {
        Ok(client)
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// The client with these certificates.
    pub(super) fn applied_to(&self, client: Client) -> Result<Client, Error> {
        let info = client.get_connection_info();
        let is_set = self.root.is_some() || self.identity.is_some();
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            let text = "certificates are of no use on a connection that is not encrypted: give a rediss:// URL";
            return if is_set { Err(Error::invalid(text)) } else { Ok(client) };
        }
        provide_cryptography();
        if !is_set {
            return Ok(client);
        }
        let unreadable = "the root certificates, or the client's certificate or key, cannot be read: give PEM";
        if self.root.as_ref().is_some_and(|pem| CertificateDer::pem_slice_iter(pem).next().is_none()) {
            return Err(Error::invalid(unreadable));
        }
        let certificates = TlsCertificates { client_tls: self.identity.clone(), root_cert: self.root.clone() };
        Client::build_with_tls(info.clone(), certificates)
            .map_err(|error| Error::invalid(unreadable).with_source(error))
    }
}

/// The redis crate takes the process's cryptography. rustls panics if there is none and dependencies
/// bring more than one to choose from.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // It fails if another thread was quicker.
        let _ = ring::default_provider().install_default();
    }
}
