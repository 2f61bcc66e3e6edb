//! Warns of clients that are counted together: by the address of a proxy, or as no address is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use http::HeaderName;
use http::request::Parts;

use crate::http::key::{Forwarding, KeyExtractor};
use crate::http::policy::Policy;

/// What was warned of the clients of a layer.
pub(super) struct Clients {
    /// [`NO_PEER`], [`FORWARDED`], [`UNNAMED`] and [`TRUSTS_ALL`]; of the layer, whatever policies it has.
    warned: Arc<AtomicU8>,
    /// In the order of the policies.
    named: Box<[Named]>,
}

/// Whether requests name their client to one policy.
#[derive(Default)]
struct Named {
    /// One came from a trusted proxy, and named none.
    not: AtomicBool,
    /// One did, or did not come from a trusted proxy.
    ever: AtomicBool,
}

/// It was warned that the peer's address is not known.
const NO_PEER: u8 = 1;

/// It was warned of a forwarded header from a peer that is not trusted.
const FORWARDED: u8 = 2;

/// It was warned of trusted proxies that do not name their clients.
const UNNAMED: u8 = 4;

/// It was warned that every peer is trusted.
const TRUSTS_ALL: u8 = 8;

/// Returns whether it is warned of a cause now: at most one load if it was before.
pub(super) fn is_first(warned: &AtomicU8, cause: u8) -> bool {
    warned.load(Relaxed) & cause == 0 && warned.fetch_or(cause, Relaxed) & cause == 0
}

impl Clients {
    /// Watches for policies; nothing was warned of yet.
    pub(super) fn of(policies: &[Policy]) -> Self {
        Self { warned: Arc::default(), named: policies.iter().map(|_| Named::default()).collect() }
    }

    /// Watches for other policies of the same layer: what was logged stays logged.
    pub(super) fn renewed(&self, policies: &[Policy]) -> Self {
        Self { warned: Arc::clone(&self.warned), ..Self::of(policies) }
    }

    /// The layer is set up: warns if clients choose their address. `client` is the extractor of the layer for lists.
    pub(super) fn set_up(&self, policies: &[Policy], client: &dyn KeyExtractor) {
        let trusts_all = |policy: &&Policy| {
            policy.extractor().inputs().trusts_all || has_addresses(policy) && policy.client(client).inputs().trusts_all
        };
        let Some(policy) = policies.iter().find(trusts_all) else { return };
        if is_first(&self.warned, TRUSTS_ALL) {
            tracing::warn!(
                code = "TG009",
                policy = policy.name(),
                "every peer is a trusted proxy, by a network of all addresses, so each client chooses its own address, \
                 and a fresh counter with it: give trusted_proxies as the networks of your proxies, or trusted_hops if \
                 nobody else can reach the server"
            );
        }
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
        let Some(policy) = self.ignoring(policies, client, parts) else { return };
        if is_first(&self.warned, FORWARDED) {
            tracing::warn!(
                code = "TG003",
                policy = policy.name(),
                "a request has a header in which proxies name the client, from a peer that this policy does not trust: \
                 the peer is taken for the client. If it is your proxy, all its clients share one counter, and lists \
                 see only its address: trust it with trusted_proxies(...) in RateLimitLayer::client, which is for lists, \
                 ip() and each key client_ip(); in a file with trusted_proxies. If clients send the header themselves, \
                 nothing is wrong"
            );
        }
    }

    /// Returns the first policy that ignores a forwarded header of a request where it matters, and notes whether the
    /// request names its client to those before.
    fn ignoring<'a>(&self, policies: &'a [Policy], client: &dyn KeyExtractor, parts: &Parts) -> Option<&'a Policy> {
        let (mut by_peer, mut is_read) = (None, false);
        for (policy, named) in policies.iter().zip(&self.named) {
            let forwarding = forwarding_of(policy, client, parts);
            named.note(forwarding);
            match forwarding {
                Forwarding::Ignored => return Some(policy),
                Forwarding::Unread => by_peer = by_peer.or(Some(policy)),
                Forwarding::Counted | Forwarding::Unnamed => is_read = true,
                Forwarding::None => {}
            }
        }
        // Where another extractor trusts the proxy, the peer is meant.
        let reads = |forwarding| matches!(forwarding, Forwarding::Counted | Forwarding::Unnamed);
        by_peer.filter(|_| !is_read && !reads(client.forwarding(parts)))
    }

    /// The last of the watched requests has been resolved: warns if all came from trusted proxies, and none had its
    /// client in the header that is read.
    pub(super) fn end(&self, policies: &[Policy], client: &dyn KeyExtractor) {
        if self.warned.load(Relaxed) & FORWARDED != 0 {
            return;
        }
        let mut each = policies.iter().zip(&self.named);
        let Some((policy, _)) = each.find(|(_, named)| named.is_never()) else { return };
        let header = policy.extractor().inputs().client_header.or_else(|| client.inputs().client_header);
        if is_first(&self.warned, UNNAMED) {
            tracing::warn!(
                code = "TG003",
                policy = policy.name(),
                header = header.as_ref().map(HeaderName::as_str),
                "the first 1000 requests all came from trusted proxies, and none had its client in the header that this \
                 policy reads: the proxies are taken for the clients, and all clients of one share a counter. Have the \
                 proxy set \"header\", or read the one that it sets, by client_ip().header(...) or .forwarded(); in a \
                 file with forwarded. If no proxy was in between, as in tests and health checks, nothing is wrong"
            );
        }
    }
}

impl Named {
    fn note(&self, forwarding: Forwarding) {
        let note = if forwarding == Forwarding::Unnamed { &self.not } else { &self.ever };
        // Nobody writes what all read.
        if !note.load(Relaxed) {
            note.store(true, Relaxed);
        }
    }

    fn is_never(&self) -> bool {
        self.not.load(Relaxed) && !self.ever.load(Relaxed)
    }
}

/// Returns what a policy makes of the headers in which proxies name the client: by its key, and by its lists of
/// addresses, for which the extractor of the layer stands in.
fn forwarding_of(policy: &Policy, client: &dyn KeyExtractor, parts: &Parts) -> Forwarding {
    let own = policy.extractor().forwarding(parts);
    let by_layer = has_addresses(policy) && policy.extractor().address(parts).is_none();
    if by_layer { own.max(policy.client(client).forwarding(parts)) } else { own }
}

/// Returns whether a policy has a list with addresses.
fn has_addresses(policy: &Policy) -> bool {
    let options = policy.options();
    [&options.allow, &options.deny].into_iter().flatten().any(|list| list.has_nets())
}
