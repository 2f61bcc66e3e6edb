//! Which primary has which slot.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::address::Address;
use super::node::Node;
use super::slot::SLOTS;

/// Every slot's primary, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Map {
    nodes: Vec<Arc<Node>>,
    /// Places among the nodes.
    owners: Box<[Option<u16>]>,
}

impl Map {
    pub(super) fn empty() -> Self {
        Self { nodes: Vec::new(), owners: vec![None; usize::from(SLOTS)].into() }
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let place = self.owners.get(usize::from(slot)).copied().flatten()?;
        self.nodes.get(usize::from(place)).cloned()
    }

    pub(super) fn node(&self, address: &Address) -> Option<Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address).cloned()
    }

    /// Gives slots to a node, which may be new.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, node: &Arc<Node>) {
        let place = self.keep(node);
        let (first, last) = (usize::from(*slots.start()), usize::from(*slots.end()));
        if let (Some(owners), Ok(place)) = (self.owners.get_mut(first..=last), u16::try_from(place)) {
            owners.fill(Some(place));
        }
    }

    /// Keeps a node, which may be new; returns its place.
    pub(super) fn keep(&mut self, node: &Arc<Node>) -> usize {
        let known = self.nodes.iter().position(|known| known.address == node.address);
        known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        })
    }
}
