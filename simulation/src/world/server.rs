//! The servers: what they run, and what is wrong with them.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::Mishaps;
use super::state::State;
use crate::host;
use crate::ledger::{Event, What};
use crate::server::{Entry, Node, Reply, Session};

/// Errors by which servers say that they ran nothing, and where the client may try again.
const REFUSALS: [&str; 12] = [
    "READONLY",
    "LOADING",
    "NOSCRIPT",
    "OOM",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "BUSY",
    "CLUSTERDOWN",
    "WRONGPASS",
    "NOAUTH",
    "CROSSSLOT",
];

/// A server, and what is wrong with it.
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) is_up: bool,
    /// It does not come back.
    pub(super) is_lost: bool,
    pub(super) frozen_until: Option<Instant>,
    pub(super) slow_ms: u64,
    pub(super) mishaps: Mishaps,
    /// How many connections to it were made.
    pub(super) connections: u64,
    /// Connections since it last decided something.
    pub(super) attempts: u32,
}

impl Server {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            is_up: true,
            is_lost: false,
            frozen_until: None,
            slow_ms: 0,
            mishaps: Mishaps::new(),
            connections: 0,
            attempts: 0,
        }
    }
}

impl State {
    /// How long the next step of a node takes.
    pub(super) fn delay(&mut self, node: usize) -> Duration {
        let slow = self.nodes.get(node).map_or(0, |node| node.slow_ms);
        let most = if slow > 0 { slow } else { [0, 0, 1, 3][self.rng.usize(..4)] };
        Duration::from_millis(self.rng.u64(..=most))
    }

    /// The servers' time, in µs since the epoch.
    pub(super) fn clock(&self) -> u64 {
        let elapsed = u64::try_from(self.trace.elapsed().as_micros()).unwrap_or(u64::MAX);
        (host::START * 1_000_000 + elapsed).saturating_add_signed(self.step_us)
    }

    /// Runs a command that came over a connection on a node.
    pub(super) fn execute(&mut self, number: u64, node: usize, session: &mut Session, command: &[Bytes]) -> Vec<u8> {
        let now_us = self.clock();
        let reply = self.nodes[node].node.execute(session, command, now_us);
        if let Reply::Error(text) = &reply {
            self.is_refused(text);
        }
        for call in self.nodes[node].node.take_calls() {
            if call.entry == Entry::Ratio {
                self.counts(number, &call);
                continue;
            }
            match self.ledger.ran(&call) {
                Ok(events) => self.note(events),
                Err(broken) => self.violate(format_args!("the rules are broken: {broken}")),
            }
        }
        let mut out = Vec::new();
        reply.write(&mut out);
        out
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in &events {
            let Event { key, what, remaining, .. } = event;
            match what {
                What::Renew { restored: 0, .. } => self.trace.meet("slots that are renewed"),
                What::Renew { .. } => self.trace.meet("slots that a server has lost"),
                What::Ban { .. } => self.notes_ban(event),
                What::Outside => {
                    self.trace.meet("a clock in none of the windows named");
                    self.may_fail();
                }
                _ => {}
            }
            self.trace.say(format_args!("  {}: {what:?}, {remaining:?} left", key.escape_ascii()));
        }
        self.events.extend(events);
    }

    fn is_refused(&mut self, text: &str) {
        if text.starts_with("CROSSSLOT") {
            self.violate(format_args!("a call has keys of two slots"));
        }
        if let Some(code) = REFUSALS.iter().find(|code| text.contains(*code)) {
            self.trace.meet(code);
        }
    }
}
