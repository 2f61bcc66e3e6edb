//! Making things go wrong, and well again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::net::Connection;
use super::plan::Fault;
use super::{State, World};
use crate::server::{ReadOnly, slot_of};

impl World {
    /// Has something go wrong.
    pub(super) fn befalls(&self, fault: Fault) {
        let mut state = self.lock();
        state.trace.say(format_args!("{fault:?}"));
        state.befalls(fault);
        if let Fault::Restarts(node, millis, _) = fault {
            drop(state);
            let world = self.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(millis)).await;
                let mut state = world.lock();
                state.nodes[node].is_up = !state.nodes[node].is_lost;
                state.may_fail();
            });
        }
    }
}

impl Fault {
    /// What it is called, where that is worth a line, and whether requests may fail for it.
    fn facts(self) -> (Option<&'static str>, bool) {
        match self {
            Self::Slow(..) => (Some("a slow server"), true),
            Self::Freezes(..) => (Some("a server that hangs"), true),
            Self::Cut(_) => (Some("connections cut"), true),
            Self::Restarts(.., true) => (Some("restart"), true),
            Self::Restarts(.., false) => (Some("restart without data"), true),
            Self::FailsOver(..) => (Some("failover"), true),
            Self::Password => (Some("a changed password"), true),
            Self::Clock(..0) => (Some("a clock that steps back"), false),
            Self::Clock(_) => (Some("a clock that steps forward"), false),
            Self::Evicts(..) => (Some("an evicted key"), false),
            // Until a call meets it.
            Self::Next(..) | Self::FlushScripts(_) | Self::Moves(_) | Self::Migrates(..) => (None, false),
            _ => (None, true),
        }
    }
}

impl State {
    fn befalls(&mut self, fault: Fault) {
        let (name, may_fail) = fault.facts();
        if let Some(name) = name {
            self.trace.meet(name);
        }
        let is_hourly = self.plan.setting.policies[0].is_hourly;
        if may_fail || is_hourly && matches!(fault, Fault::Clock(_)) {
            self.may_fail();
        }
        match fault {
            Fault::Next(node, mishap) => self.nodes[node].mishaps.push_back(mishap),
            Fault::Slow(node, millis) => self.nodes[node].slow_ms = millis,
            Fault::Freezes(node, millis) => {
                self.nodes[node].frozen_until = Some(Instant::now() + Duration::from_millis(millis));
            }
            Fault::ReadOnly(node, is_old) => self.nodes[node].node.fault.read_only = Some(read_only(is_old)),
            Fault::Loading(node) => self.nodes[node].node.fault.loading = true,
            Fault::OutOfMemory(node) => self.nodes[node].node.fault.out_of_memory = true,
            Fault::Busy(node) => self.nodes[node].node.fault.busy = true,
            Fault::ClusterDown(node) => self.nodes[node].node.fault.cluster_down = true,
            Fault::FlushScripts(node) => self.nodes[node].node.flush_scripts(),
            Fault::Clock(millis) => {
                self.disturb();
                let ahead = self.ahead_us(Instant::now()) + millis * 1_000;
                self.steps_us.push((Instant::now(), ahead));
            }
            Fault::Evicts(node, which) => self.evict(node, which),
            Fault::Moves(which) => self.move_slot(which, usize::MAX),
            Fault::Migrates(which, keys) => self.move_slot(which, keys),
            Fault::Password => {
                self.password.0 += 1;
                let password = Some(self.password.0.to_string());
                self.nodes.iter_mut().for_each(|node| node.node.fault.password.clone_from(&password));
            }
            Fault::Cut(node) => self.cut(node),
            Fault::Swallows(node) => self.connections_of(node).for_each(|connection| connection.is_swallowed = true),
            Fault::Demoted(node, is_old) => {
                self.connections_of(node).for_each(|connection| connection.is_demoted = Some(read_only(is_old)));
            }
            Fault::Restarts(node, _, keeps) => {
                self.cut(node);
                self.nodes[node].is_up = false;
                if keeps { self.nodes[node].node.flush_scripts() } else { self.lose_data(node) }
            }
            Fault::FailsOver(node, keeps) => self.fail_over(node, keeps),
        }
    }

    fn connections_of(&mut self, node: usize) -> impl Iterator<Item = &mut Connection> {
        self.connections.values_mut().filter(move |connection| connection.node == node)
    }

    /// Ends all connections to a node.
    pub(super) fn cut(&mut self, node: usize) {
        self.connections_of(node).for_each(|connection| connection.cut.notify_one());
    }

    fn keys_of(&self, node: usize) -> Vec<Vec<u8>> {
        self.nodes[node].node.keys().map(<[u8]>::to_vec).collect()
    }

    fn lose_data(&mut self, node: usize) {
        self.disturb();
        self.nodes[node].node.clear();
    }

    fn evict(&mut self, node: usize, which: u8) {
        let keys = self.keys_of(node);
        let Some(key) = keys.get(usize::from(which) % keys.len().max(1)) else { return };
        self.disturb();
        self.nodes[node].node.forget(key);
    }

    /// Moves a slot that has keys, with so many of them; with all, it has moved.
    fn move_slot(&mut self, which: u8, most: usize) {
        let of = |node: usize| self.keys_of(node).into_iter().map(move |key| (node, key));
        let keys: Vec<(usize, Vec<u8>)> = (0..self.nodes.len()).flat_map(of).collect();
        let Some((from, key)) = keys.get(usize::from(which) % keys.len().max(1)).cloned() else { return };
        let (slot, to) = (slot_of(&key), (from + 1) % 3);
        let owner = self.slots().owner(slot);
        if owner != Some(number(from)) || self.slots().destination(slot).is_some() || !self.nodes[to].is_up {
            return;
        }
        // On its way back, an ASK of the way there would be taken for one of now: so it is with Redis itself.
        if most != usize::MAX && self.has_had.contains(&(slot, to)) {
            return;
        }
        self.has_had.insert((slot, from));
        self.slots().begin_move(slot, number(to));
        for (_, key) in keys.iter().filter(|(node, key)| *node == from && slot_of(key) == slot).take(most) {
            self.move_key(from, to, key);
        }
        if most == usize::MAX {
            self.slots().assign(slot, number(to));
        }
    }

    fn move_key(&mut self, from: usize, to: usize, key: &[u8]) {
        let now_us = self.clock_us(Instant::now());
        let [from, to] = self.nodes.get_disjoint_mut([from, to]).expect("they are two");
        from.node.move_key(&mut to.node, key, now_us);
    }

    /// A replica takes the slots of a node for good: the last one, which has none before.
    fn fail_over(&mut self, node: usize, keeps: bool) {
        self.cut(node);
        let (from, last) = (number(node), self.nodes.len() - 1);
        let ranges = self.slots().ranges();
        if ranges.iter().any(|(.., owner)| *owner == number(last)) {
            return;
        }
        (self.nodes[node].is_up, self.nodes[node].is_lost) = (false, true);
        let moves: Vec<_> = self.slots().moves().filter(|(.., to)| *to == from).collect();
        for (slot, ..) in moves {
            self.slots().cancel_move(slot);
        }
        if keeps {
            self.keys_of(node).iter().for_each(|key| self.move_key(node, last, key));
        }
        self.lose_data(node);
        for (first, end, _) in ranges.into_iter().filter(|(.., owner)| *owner == from) {
            self.slots().assign_all(first..end + 1, number(last));
        }
        // Keys that were on their way to it are lost.
        for other in 0..self.nodes.len() {
            for key in self.keys_of(other) {
                let (slot, this) = (slot_of(&key), Some(number(other)));
                if self.slots().owner(slot) != this && self.slots().destination(slot) != this {
                    self.nodes[other].node.forget(&key);
                }
            }
        }
    }

    /// Makes all well again; steps of clocks and what was lost stay.
    pub(super) fn heal(&mut self) {
        self.trace.say(format_args!("all is well"));
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

fn read_only(is_old: bool) -> ReadOnly {
    if is_old { ReadOnly::Old } else { ReadOnly::New }
}

fn number(node: usize) -> u16 {
    u16::try_from(node).expect("there are few")
}
