//! TLS: verification of servers, and the client's identity.
//!
//! Certificates are read when the store is built, so that an unreadable one fails the build and not the first
//! connection. The verification of a server cannot be turned off.

use std::{io, sync::Arc};

use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::link::Duplex;
use crate::core::Error;
use crate::core::error::Kind;

/// PEM texts. Without roots, the system's root certificates are trusted.
#[derive(Default)]
pub(in crate::store::redis) struct Tls {
    pub(in crate::store::redis) root: Option<Vec<u8>>,
    pub(in crate::store::redis) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Returns `None` if no address is encrypted. Certificates with an address that is not encrypted are an error.
    pub(in crate::store::redis) fn config(
        &self,
        servers: &[ConnectionInfo],
    ) -> Result<Option<Arc<ClientConfig>>, Error> {
        let is_encrypted = |server: &ConnectionInfo| matches!(server.addr(), ConnectionAddr::TcpTls { .. });
        let is_set = self.root.is_some() || self.identity.is_some();
        if is_set && !servers.iter().all(is_encrypted) {
            return Err(Error::invalid(
                "certificates are of no use on a connection that is not encrypted: use a rediss:// URL",
            ));
        }
        if servers.iter().any(is_encrypted) { self.read().map(Arc::new).map(Some) } else { Ok(None) }
    }

    fn read(&self) -> Result<ClientConfig, Error> {
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| {
            Error::invalid("the process's rustls provider has no safe version of TLS").with_source(error)
        })?;
        let config = config.with_root_certificates(self.roots()?);
        let Some((chain, key)) = &self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(unreadable)?;
        config.with_client_auth_cert(chain, key).map_err(unreadable)
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = &self.root else {
            let native = rustls_native_certs::load_native_certs();
            if let (true, Some(error)) = (native.certs.is_empty(), native.errors.into_iter().next()) {
                let text = "the system's root certificates cannot be read: use root certificates";
                return Err(Error::new(Kind::Connection, text).with_source(error));
            }
            roots.add_parsable_certificates(native.certs);
            return Ok(roots);
        };
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(unreadable)?;
        }
        Ok(roots)
    }
}

/// The certificate must be valid for `host`, a name or an address.
pub(super) async fn encrypt(
    config: Option<&Arc<ClientConfig>>,
    host: &str,
    stream: Box<dyn Duplex>,
) -> io::Result<TlsStream<Box<dyn Duplex>>> {
    let config = config.cloned().ok_or_else(|| io::Error::other("no certificates were read for TLS"))?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unreadable)?;
    if read.is_empty() { Err(unreadable("there is no certificate in it")) } else { Ok(read) }
}

fn unreadable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("the root certificates, or the client's certificate or key, cannot be read: use PEM")
        .with_source(cause)
}
