//! The settings of a client for which a layer and a key have some each.

use super::client_ip::ClientIp;
use super::hops::Source;
use super::trust::Trust;
use crate::core::Error;

impl ClientIp {
    /// Checks that not every peer is a trusted proxy.
    ///
    /// # Errors
    ///
    /// If clients could choose their addresses.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.trust.as_ref().is_some_and(Trust::is_of_all) {
            return Ok(());
        }
        Err(Error::invalid(
            "every peer would be a trusted proxy, by a network of all addresses, so each client would choose its own \
             address, and a fresh counter with it: give trusted_proxies as the networks of your proxies, or trusted_hops \
             if nobody else can reach the server",
        ))
    }

    /// Returns this client with the settings of the layer's where it has none.
    ///
    /// # Errors
    ///
    /// If they contradict the layer's, or trust every peer. A layer that trusts proxies reads one header, whether or not
    /// that is set.
    pub(crate) fn bound(&self, layer: &Self) -> Result<Self, Error> {
        self.check()?;
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
            trust: self.trust.clone().or(trust),
            source: self.source.clone().or(source),
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
