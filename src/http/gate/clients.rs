//! Warns of clients that are counted together: by the address of a proxy, or as no address is known.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::request::Parts;

use crate::http::key::{Forwarding, KeyExtractor};
use crate::http::policy::Policy;

/// What was warned of the clients of a layer.
pub(super) struct Clients {
    /// [`NO_PEER`] and [`FORWARDED`].
    warned: AtomicU8,
}

/// It was warned that the peer's address is not known.
const NO_PEER: u8 = 1;

/// It was warned of a forwarded header from a peer that is not trusted.
const FORWARDED: u8 = 2;

/// Returns whether it is warned of a cause now: at most one load if it was before.
pub(super) fn is_first(warned: &AtomicU8, cause: u8) -> bool {
    warned.load(Relaxed) & cause == 0 && warned.fetch_or(cause, Relaxed) & cause == 0
}

impl Clients {
    /// Nothing was warned of yet.
    pub(super) fn new() -> Self {
        Self { warned: AtomicU8::new(0) }
    }

    /// Watches for other policies of the same layer: what was logged stays logged.
    pub(super) fn renewed(&self) -> Self {
        Self { warned: AtomicU8::new(self.warned.load(Relaxed)) }
    }

    /// A request lacks the key of a policy; `is_reason` is whether for want of the peer's address, called until it was
    /// warned of that.
    pub(super) fn lacks_peer(&self, is_reason: impl FnOnce() -> bool) {
        if self.warned.load(Relaxed) & NO_PEER == 0 && is_reason() && is_first(&self.warned, NO_PEER) {
            tracing::warn!(
                code = "TG004",
                "requests have no peer address, so limits by IP address count all clients together by default: with \
                 axum, serve the app with `into_make_service_with_connect_info::<SocketAddr>()`; with tonic, enable \
                 the feature tonic; with another server, insert the peer's SocketAddr into the extensions of each \
                 request; behind a Unix socket, count by client_ip() with trusted_unix_socket, and have the proxy name \
                 the client; if the request came from the machine itself, as health checks do, nothing is wrong"
            );
        }
    }

    /// Looks whether a request has a forwarded header from a peer that is not trusted, where all its clients would be
    /// counted together; `client` is the extractor of the layer for lists of addresses.
    pub(super) fn forwarding(&self, policies: &[Policy], client: &dyn KeyExtractor, parts: &Parts) {
        if self.warned.load(Relaxed) & FORWARDED != 0 {
            return;
        }
        let Some(policy) = ignoring(policies, client, parts) else { return };
        if is_first(&self.warned, FORWARDED) {
            tracing::warn!(
                code = "TG003",
                policy = policy.name(),
                "a request has a header in which proxies name the client, from a peer that this policy does not trust: \
                 the peer is taken for the client. If it is your proxy, all its clients share one counter, and lists \
                 see only its address: trust it with trusted_proxies(...) in the policy's own key::client_ip(), and in \
                 RateLimitLayer::client, which is for ip() and for lists; in a file with trusted_proxies. If clients \
                 send the header themselves, nothing is wrong"
            );
        }
    }
}

/// Returns the first policy that ignores a forwarded header of a request where it matters.
fn ignoring<'a>(policies: &'a [Policy], client: &dyn KeyExtractor, parts: &Parts) -> Option<&'a Policy> {
    let mut by_peer = None;
    let mut is_read = client.forwarding(parts) == Forwarding::Counted;
    for policy in policies {
        match forwarding_of(policy, client, parts) {
            Forwarding::Ignored => return Some(policy),
            Forwarding::Unread => by_peer = by_peer.or(Some(policy)),
            Forwarding::Counted => is_read = true,
            Forwarding::None => {}
        }
    }
    // Where another extractor trusts the proxy, the peer is meant.
    by_peer.filter(|_| !is_read)
}

/// Returns what a policy makes of the headers in which proxies name the client: by its key, and by its lists of
/// addresses, for which the extractor of the layer stands in.
fn forwarding_of(policy: &Policy, client: &dyn KeyExtractor, parts: &Parts) -> Forwarding {
    let own = policy.extractor().forwarding(parts);
    let by_layer = has_addresses(policy) && policy.extractor().address(parts).is_none();
    if by_layer { own.max(client.forwarding(parts)) } else { own }
}

/// Returns whether a policy has a list with addresses.
fn has_addresses(policy: &Policy) -> bool {
    let options = policy.options();
    [&options.allow, &options.deny].into_iter().flatten().any(|list| list.has_nets())
}
