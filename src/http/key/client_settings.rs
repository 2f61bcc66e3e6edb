//! The settings by which the client's address is extracted: of a key, and of the layer that has it.

use std::net::IpAddr;

use http::HeaderName;

use super::ip::DEFAULT_V6_PREFIX;
use super::trust::Trust;
use crate::core::Error;

/// The settings of a [`ClientIp`](super::ClientIp); what is not set is as in the layer's client.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientSettings {
    /// Nobody, if it is not set.
    pub(super) trust: Option<Trust>,
    /// `X-Forwarded-For`, if it is not set.
    pub(super) source: Option<Source>,
    /// Whether a peer without an address is a trusted proxy.
    pub(super) unix_socket: bool,
    /// In bits, at most 128; 56 if it is not set.
    pub(super) v6_prefix: Option<u8>,
}

/// The header that is read: only one, as a client can send each one that a proxy does not overwrite.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

impl ClientSettings {
    pub(super) fn source(&self) -> &Source {
        self.source.as_ref().unwrap_or(&Source::XForwardedFor)
    }

    pub(super) fn prefix(&self) -> u8 {
        self.v6_prefix.unwrap_or(DEFAULT_V6_PREFIX)
    }

    /// Whether the proxy at `address` is trusted, after `passed` others.
    pub(super) fn trusts(&self, passed: usize, address: IpAddr) -> bool {
        self.trust.as_ref().is_some_and(|trust| trust.covers(passed, address))
    }

    /// Returns these settings, with the layer's where there are none.
    ///
    /// # Errors
    ///
    /// If they contradict the layer's, or one of both trusts every peer. A layer that trusts proxies reads one header,
    /// whether or not that is set.
    pub(super) fn bound(self, layer: &Self) -> Result<Self, Error> {
        if [&self, layer].iter().any(|settings| settings.trust.as_ref().is_some_and(Trust::is_of_all)) {
            return Err(Error::invalid(
                "every peer would be a trusted proxy, by a network of all addresses, so each client would choose its own \
                 address, and a fresh counter with it: give trusted_proxies as the networks of your proxies, or \
                 trusted_hops if nobody else can reach the server",
            ));
        }
        let layer_trusts = layer.trust.is_some() || layer.unix_socket;
        let trust = layer.trust.clone().or_else(|| layer_trusts.then(Trust::nobody));
        let source = layer.source.clone().or_else(|| layer_trusts.then_some(Source::XForwardedFor));
        let other_socket = layer_trusts && self.unix_socket && !layer.unix_socket;
        if other_socket || differ(self.trust.as_ref(), trust.as_ref()) {
            return Err(contradiction("trusts other proxies"));
        }
        if differ(self.source.as_ref(), source.as_ref()) {
            return Err(contradiction("reads another header"));
        }
        Ok(Self {
            trust: self.trust.or(trust),
            source: self.source.or(source),
            unix_socket: self.unix_socket || layer.unix_socket,
            v6_prefix: self.v6_prefix.or(layer.v6_prefix),
        })
    }
}

/// Returns whether both are set, and not the same.
fn differ<T: PartialEq>(own: Option<&T>, layer: Option<&T>) -> bool {
    own.zip(layer).is_some_and(|(own, layer)| own != layer)
}

fn contradiction(what: &str) -> Error {
    Error::invalid(format!(
        "its client_ip() {what} than the client of the layer: set proxies and header in RateLimitLayer::client only"
    ))
}
