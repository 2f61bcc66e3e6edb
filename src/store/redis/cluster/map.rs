//! Which primary has which slot.
//!
//! Ranges of slots and nodes come in; the owner of a slot goes out. A map is read by every decision
//! and replaced as a whole (`nodes.rs`), so reading it takes no lock. It may be out of date at any
//! time: a wrong entry costs one redirection, as the node that is called redirects to the right one.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::address::Address;
use super::node::Node;
use super::slot::SLOTS;

/// The primary of every slot, as far as it is known. A clone shares the nodes, with their connections.
#[derive(Clone, Debug)]
pub(super) struct Map {
    /// The nodes, each once by its address: those that have slots, and those to which slots are
    /// being moved.
    nodes: Vec<Arc<Node>>,
    /// For each slot the place of its primary among the nodes; `None` while it is not known.
    owners: Box<[Option<u16>]>,
}

impl Map {
    /// Returns a map without nodes.
    pub(super) fn empty() -> Self {
        Self { nodes: Vec::new(), owners: vec![None; usize::from(SLOTS)].into() }
    }

    /// Returns the nodes, in no particular order.
    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Returns the primary that has a slot, or `None` if none is known: no look has found one yet,
    /// or the Cluster itself has none for the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let place = self.owners.get(usize::from(slot)).copied().flatten()?;
        self.nodes.get(usize::from(place)).cloned()
    }

    /// Returns the node at an address, if it is known.
    pub(super) fn node(&self, address: &Address) -> Option<Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address).cloned()
    }

    /// Assigns slots to a node, which may be new. Both ends of the range are included. A range
    /// beyond the last slot changes nothing; `read_ranges` returns none.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, node: &Arc<Node>) {
        let place = self.keep(node);
        let (first, last) = (usize::from(*slots.start()), usize::from(*slots.end()));
        if let (Some(owners), Ok(place)) = (self.owners.get_mut(first..=last), u16::try_from(place)) {
            owners.fill(Some(place));
        }
    }

    /// Adds a node, unless there is one at its address; returns the place of the one that is there.
    pub(super) fn keep(&mut self, node: &Arc<Node>) -> usize {
        let known = self.nodes.iter().position(|known| known.address == node.address);
        known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        })
    }
}
