//! Servers that are away, for a while or for good, and what they lose.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::World;
use super::fault::node_number;
use super::state::State;
use crate::server::slot_of;

impl World {
    pub(super) fn restart(&self, node: usize, millis: u64, keeps: bool) {
        self.cut(node);
        let mut state = self.lock();
        state.trace.meet(if keeps { "restart" } else { "restart without memory" });
        state.nodes[node].is_up = false;
        state.lose_memory(node, keeps);
        drop(state);
        let world = self.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(millis)).await;
            let mut state = world.lock();
            state.nodes[node].is_up = !state.nodes[node].is_lost;
            state.is_troubled_until(Instant::now());
            state.may_fail();
        });
    }

    /// A replica takes the slots of a node for good: the last one, which has none before.
    pub(super) fn fail_over(&self, node: usize, keeps: bool) {
        self.cut(node);
        let mut state = self.lock();
        let (from, to) = (node_number(node), node_number(state.nodes.len() - 1));
        let is_first = !state.slots().ranges().iter().any(|(.., owner)| *owner == to);
        if !is_first {
            return;
        }
        state.trace.meet("failover");
        (state.nodes[node].is_up, state.nodes[node].is_lost) = (false, true);
        state.stays_where_it_was(from);
        if keeps {
            let last = usize::from(to);
            state.keys_of(node).iter().for_each(|key| state.move_key(node, last, key));
        }
        state.lose_memory(node, false);
        let ranges = state.slots().ranges();
        for (first, last, _) in ranges.into_iter().filter(|(.., owner)| *owner == from) {
            state.slots().assign_all(first..last + 1, to);
        }
        state.lose_strays();
    }
}

impl State {
    /// No slot is on its way to a node any more.
    fn stays_where_it_was(&self, node: u16) {
        let mut slots = self.slots();
        let moves: Vec<u16> = slots.moves().filter(|(.., to)| *to == node).map(|(slot, ..)| slot).collect();
        for slot in moves {
            slots.cancel_move(slot);
        }
    }

    fn lose_memory(&mut self, node: usize, keeps: bool) {
        if keeps {
            return self.nodes[node].node.restart_keeping_data();
        }
        self.disturbed = Some(Instant::now());
        for key in self.keys_of(node) {
            self.ledger.forgot(&key);
        }
        self.nodes[node].node.clear();
    }

    /// Keys on nodes that do not have their slot any more, as it was on its way, are lost.
    fn lose_strays(&mut self) {
        for node in 0..self.nodes.len() {
            for key in self.keys_of(node) {
                let (slot, this) = (slot_of(&key), Some(node_number(node)));
                let is_here = self.slots().owner(slot) == this || self.slots().destination(slot) == this;
                if !is_here {
                    self.nodes[node].node.forget(&key);
                    self.ledger.forgot(&key);
                }
            }
        }
    }
}
