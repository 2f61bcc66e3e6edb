//! What keys need of the server.

/// What a key needs of the server that receives the request, so that a layer can say what is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// The address at the other end of the connection.
    pub peer: bool,
    /// The header in which trusted proxies name the client, if there are proxies.
    pub proxies: bool,
    /// The template of the route that matched.
    pub route: bool,
}

impl Needs {
    /// Returns those of a key that is made of two.
    pub(super) fn and(self, other: Self) -> Self {
        Self { peer: self.peer || other.peer, proxies: self.proxies || other.proxies, route: self.route || other.route }
    }
}
