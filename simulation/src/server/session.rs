//! What a node knows of a connection.

use super::Node;

/// What a node knows of one connection to it.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) authenticated: bool,
    /// The command before was `ASKING`.
    pub(super) asking: bool,
    pub(super) database: usize,
    pub(super) name: Vec<u8>,
    pub(super) id: i64,
}

impl Session {
    /// A new connection: it has to log in if the node has a password by now.
    pub fn new(node: &Node) -> Self {
        let authenticated = node.fault.password.is_none();
        Self { authenticated, asking: false, database: 0, name: Vec::new(), id: node.next_id() }
    }

    /// Whether it logged in, or did not have to.
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }
}
