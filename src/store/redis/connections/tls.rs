//! How an encrypted server proves who it is, and this process to it.

#[cfg(feature = "tls")]
use std::{io, sync::Arc};

use deadpool_redis::redis::ConnectionAddr;
#[cfg(feature = "tls")]
use rustls::crypto::{CryptoProvider, ring};
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};
#[cfg(feature = "tls")]
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::core::Error;
#[cfg(feature = "tls")]
use crate::core::error::Kind;

/// Certificates and keys; without any, the system's root certificates count.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Tls {
    #[cfg(feature = "tls")]
    pub(in crate::store::redis) root: Option<Vec<u8>>,
    /// A chain of certificates, and its private key.
    #[cfg(feature = "tls")]
    pub(in crate::store::redis) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// How connections are encrypted, if they are.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Encryption {
    #[cfg(feature = "tls")]
    config: Option<Arc<ClientConfig>>,
}

#[cfg(not(feature = "tls"))]
impl Tls {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the feature `tls` has use for both")]
    pub(in crate::store::redis) fn encryption(&self, _: &[ConnectionAddr]) -> Result<Encryption, Error> {
        Ok(Encryption::default())
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// How connections to some addresses, and to the servers found there, are encrypted.
    pub(in crate::store::redis) fn encryption(&self, addresses: &[ConnectionAddr]) -> Result<Encryption, Error> {
        let is_encrypted = |address: &ConnectionAddr| matches!(address, ConnectionAddr::TcpTls { .. });
        let is_set = self.root.is_some() || self.identity.is_some();
        if is_set && !addresses.iter().all(is_encrypted) {
            return Err(Error::invalid(
                "certificates are of no use on a connection that is not encrypted: give a rediss:// URL",
            ));
        }
        let is_used = addresses.iter().any(is_encrypted);
        Ok(Encryption { config: if is_used { Some(Arc::new(self.config()?)) } else { None } })
    }

    /// The process's cryptography, or ring's if none is installed.
    fn config(&self) -> Result<ClientConfig, Error> {
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
                let text = "the system's root certificates cannot be read: give root certificates";
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

#[cfg(feature = "tls")]
impl Encryption {
    /// A stream to a host that proves it is that one.
    pub(super) async fn wrap<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let config = self.config.clone().ok_or_else(|| io::Error::other("no certificates were read for TLS"))?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

#[cfg(feature = "tls")]
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unreadable)?;
    if read.is_empty() { Err(unreadable("there is no certificate in it")) } else { Ok(read) }
}

#[cfg(feature = "tls")]
fn unreadable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("the root certificates, or the client's certificate or key, cannot be read: give PEM")
        .with_source(cause)
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}
