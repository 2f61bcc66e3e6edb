//! Whom a ban by a key refuses.

/// Whom a [ban](crate::Ban) by a key refuses, besides the client whose requests provoked it.
///
/// A policy with a ban is an error when it is given to a layer, if others could have a client banned.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Bannable, KeyExtractor};
///
/// assert_eq!(key::peer_ip().bannable(), Bannable::Client);
/// assert_eq!(key::client_ip().trusted_hops(1).bannable(), Bannable::Spoofable);
/// assert_eq!(key::header("x-api-key").bannable(), Bannable::Claimed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bannable {
    /// The client itself, and those who share its address or account: the key comes from the connection, from trusted
    /// proxies or from the server.
    Client,
    /// Perhaps somebody else: clients choose the key, so one could send that of another. A ban is accepted if it says
    /// that keys are [verified](crate::Ban::of_verified_keys) before.
    Claimed,
    /// Perhaps somebody else: the address is in a header that anyone may write.
    Spoofable,
    /// All clients, as they share the key.
    Shared,
}

impl Bannable {
    /// Returns whom a ban by a pair of this key and another one refuses.
    ///
    /// A client that cannot choose one part cannot have the pair of another client. An address that it can choose is
    /// none to rely on, whatever the other part is.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Spoofable, _) | (_, Self::Spoofable) => Self::Spoofable,
            (Self::Client, _) | (_, Self::Client) => Self::Client,
            (Self::Claimed, _) | (_, Self::Claimed) => Self::Claimed,
            (Self::Shared, Self::Shared) => Self::Shared,
        }
    }
}
