//! What befalls all connections to a node.

use super::World;
use crate::server::ReadOnly;

impl World {
    /// Ends all connections to a node.
    pub(super) fn cut(&self, node: usize) {
        let mut state = self.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.node == node) {
            connection.is_cut = true;
            connection.cut.notify_one();
        }
    }

    /// Has the connections to a node lead to a replica.
    pub(super) fn demote(&self, node: usize, is_old: bool) {
        let mut state = self.lock();
        let how = if is_old { ReadOnly::Old } else { ReadOnly::New };
        for connection in state.connections.values_mut().filter(|connection| connection.node == node) {
            connection.is_demoted = Some(how);
        }
    }

    /// Has nothing pass any more on the connections to a node.
    pub(super) fn swallow(&self, node: usize) {
        let mut state = self.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.node == node) {
            connection.is_swallowed = true;
        }
    }
}
