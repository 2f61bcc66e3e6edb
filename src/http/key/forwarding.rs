//! What an extractor makes of the headers in which proxies name the client, and what else its keys are made of.

use http::HeaderName;

use crate::core::Kind;

/// What a key extractor makes of the headers of a request in which proxies name the client.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// There is no such header, or it does not matter to the key.
    None,
    /// There is one, and the extractor reads none on purpose: it is by the peer.
    Unread,
    /// The peer is a trusted proxy, and the header that is read names no client: the peer is taken for it.
    Unnamed,
    /// There is one, and it counts, as the peer is trusted.
    Counted,
    /// There is one, from a peer that is not trusted.
    Ignored,
}

/// What the keys of an extractor are made of, for warnings of a layer.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The header in which trusted proxies name the client.
    pub client_header: Option<HeaderName>,
    /// Whether they have the template of the route that matched.
    pub has_route: bool,
    /// Whether every peer is a trusted proxy, by a network of all addresses.
    pub trusts_all: bool,
    /// The kinds of those that are named when they are set up, such as a header's.
    pub(crate) kinds: Vec<Kind>,
}

impl Inputs {
    /// Returns those of a key of a kind that is named when it is set up.
    pub(super) fn of(kind: &Kind) -> Self {
        Self { kinds: vec![kind.clone()], ..Self::default() }
    }

    /// Returns those of a key that is made of two.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        Self {
            client_header: self.client_header.or(other.client_header),
            has_route: self.has_route || other.has_route,
            trusts_all: self.trusts_all || other.trusts_all,
            kinds: self.kinds,
        }
    }
}
