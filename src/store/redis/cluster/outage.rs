//! What is known of primaries that are away.

use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use super::nodes::Cluster;
use crate::Error;
use crate::store::BreakerState;
use crate::store::outage::Outage;

impl Cluster {
    /// Why a call for a slot is not worth making: its primary would not be asked.
    pub(in crate::store::redis) fn not_asked(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.is_asked())?;
        // Another one may have the slot by now.
        self.look_again(Some(node.address.clone()));
        Some(node.not_asked().of_one_server(node.outage()))
    }

    /// The error of a call for a slot, as one of its primary. A slot that has none is taken to have
    /// none for long: it must not be admitted whatever is asked for while that lasts.
    pub(in crate::store::redis) fn told(&self, slot: u16, error: Error) -> Error {
        let nobody = || Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
        error.of_one_server(self.owner(slot).map_or_else(nobody, |node| node.outage()))
    }

    /// The primaries, and whether they are asked.
    pub(in crate::store::redis) fn breakers(&self) -> Vec<(String, BreakerState)> {
        let states = |node: &Arc<Node>| (node.address.to_string(), node.state());
        let mut states: Vec<_> = self.nodes().iter().map(states).collect();
        states.sort_unstable_by(|(address, _), (other, _)| address.cmp(other));
        states
    }
}
