//! What an extractor makes of the headers in which proxies name the client.

/// What a key extractor makes of the headers of a request in which proxies name the client.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarding {
    /// There is no such header, or it does not matter to the key.
    None,
    /// There is one, and the extractor reads none on purpose: it is by the peer.
    Unread,
    /// There is one, and it counts, as the peer is trusted.
    Counted,
    /// There is one, from a peer that is not trusted.
    Ignored,
}
