//! Making things go wrong, and well again.

use std::time::Duration;

use tokio::time::Instant;

use super::World;
use super::plan::Fault;
use super::state::State;
use crate::server::{ReadOnly, slot_of};

impl World {
    /// Has something go wrong.
    pub(super) fn befalls(&self, fault: Fault) {
        let mut state = self.lock();
        state.trace.say(format_args!("{fault:?}"));
        state.is_troubled_until(Instant::now());
        if !fault.is_harmless() {
            state.may_fail();
        }
        drop(state);
        match fault {
            Fault::Cut(node) => {
                self.lock().trace.meet("connections cut");
                self.cut(node);
            }
            Fault::Swallows(node) => self.swallow(node),
            Fault::Restarts(node, millis, keeps) => self.restart(node, millis, keeps),
            Fault::FailsOver(node, keeps) => self.fail_over(node, keeps),
            Fault::Demoted(node, is_old) => self.demote(node, is_old),
            fault => self.lock().befalls(fault),
        }
    }
}

impl State {
    fn befalls(&mut self, fault: Fault) {
        match fault {
            Fault::Next(node, mishap) => self.nodes[node].mishaps.push_back(mishap),
            Fault::Slow(node, millis) => {
                self.trace.meet("a slow server");
                self.nodes[node].slow_ms = millis;
            }
            Fault::Freezes(node, millis) => {
                self.trace.meet("a server that hangs");
                let until = Instant::now() + Duration::from_millis(millis);
                self.nodes[node].frozen_until = Some(until);
                self.is_troubled_until(until);
            }
            Fault::ReadOnly(node, is_old) => {
                let how = if is_old { ReadOnly::Old } else { ReadOnly::New };
                self.nodes[node].node.fault.read_only = Some(how);
            }
            Fault::Loading(node) => self.nodes[node].node.fault.loading = true,
            Fault::OutOfMemory(node) => self.nodes[node].node.fault.out_of_memory = true,
            Fault::Busy(node) => self.nodes[node].node.fault.busy = true,
            Fault::ClusterDown(node) => self.nodes[node].node.fault.cluster_down = true,
            Fault::FlushScripts(node) => self.nodes[node].node.flush_scripts(),
            Fault::Clock(millis) => {
                self.trace.meet(if millis < 0 { "a clock that steps back" } else { "a clock that steps forward" });
                self.disturbed = Some(Instant::now());
                self.ledger.clock(self.clock());
                self.step_us += millis * 1_000;
            }
            Fault::Evicts(node, which) => self.evict(node, which),
            Fault::Moves(which) => self.move_slot(which, usize::MAX),
            Fault::Migrates(which, keys) => self.move_slot(which, keys),
            Fault::Password => self.change_password(),
            Fault::Cut(_) | Fault::Swallows(_) | Fault::Restarts(..) | Fault::FailsOver(..) | Fault::Demoted(..) => {}
        }
    }

    pub(super) fn keys_of(&self, node: usize) -> Vec<Vec<u8>> {
        self.nodes[node].node.keys().map(|(key, ..)| key.to_vec()).collect()
    }

    fn evict(&mut self, node: usize, which: u8) {
        let keys = self.keys_of(node);
        let Some(key) = keys.get(usize::from(which) % keys.len().max(1)) else { return };
        self.trace.meet("an evicted key");
        self.disturbed = Some(Instant::now());
        self.nodes[node].node.forget(key);
        self.ledger.forgot(key);
    }

    /// Moves a slot that has keys, with so many of them; with all, it has moved.
    fn move_slot(&mut self, which: u8, most: usize) {
        let keys: Vec<(usize, Vec<u8>)> =
            (0..self.nodes.len()).flat_map(|node| self.keys_of(node).into_iter().map(move |key| (node, key))).collect();
        let Some((from, key)) = keys.get(usize::from(which) % keys.len().max(1)).cloned() else { return };
        let (slot, to) = (slot_of(&key), (from + 1) % 3);
        let owner = self.slots().owner(slot);
        if owner != Some(node_number(from)) || self.slots().destination(slot).is_some() || !self.nodes[to].is_up {
            return;
        }
        // On its way back, an ASK of the way there would be taken for one of now: so it is with Redis itself.
        if most != usize::MAX && self.has_had.contains(&(slot, to)) {
            return;
        }
        self.has_had.insert((slot, from));
        self.slots().begin_move(slot, node_number(to));
        let moved = keys.iter().filter(|(node, key)| *node == from && slot_of(key) == slot).take(most);
        for (_, key) in moved {
            self.move_key(from, to, key);
        }
        if most == usize::MAX {
            self.slots().assign(slot, node_number(to));
        }
    }

    pub(super) fn move_key(&mut self, from: usize, to: usize, key: &[u8]) {
        let now_us = self.clock();
        let [from, to] = self.nodes.get_disjoint_mut([from, to]).expect("they are two");
        from.node.move_key(&mut to.node, key, now_us);
    }

    fn change_password(&mut self) {
        self.trace.meet("a changed password");
        self.password.0 += 1;
        let password = Some(self.password.0.to_string());
        for node in &mut self.nodes {
            node.node.fault.password.clone_from(&password);
        }
    }

    /// Makes all well again; steps of clocks and what was lost stay.
    pub(super) fn heal(&mut self) {
        self.trace.say(format_args!("all is well"));
        if self.is_troubled() {
            self.is_troubled_until(Instant::now());
            // What was wrong may show still.
            self.last_failure = Some(Instant::now());
        }
        self.password.1 = self.password.0;
        for node in &mut self.nodes {
            let password = node.node.fault.password.take();
            node.node.fault = crate::server::Faults { password, ..Default::default() };
            (node.is_up, node.frozen_until, node.slow_ms) = (!node.is_lost, None, 0);
            node.mishaps.clear();
        }
        let moves: Vec<_> = if self.nodes.len() > 1 { self.slots().moves().collect() } else { Vec::new() };
        for (slot, from, to) in moves {
            let from = from.map_or(usize::from(to), usize::from);
            for key in self.keys_of(from).into_iter().filter(|key| slot_of(key) == slot) {
                self.move_key(from, usize::from(to), &key);
            }
            self.slots().assign(slot, to);
        }
    }
}

pub(super) fn node_number(node: usize) -> u16 {
    u16::try_from(node).expect("there are few")
}
