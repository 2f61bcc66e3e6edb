//! What the world is like at a moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use tokio::time::Instant;
use tollgate::BreakerState;

use super::net::{Connection, Mishaps};
use super::plan::{Plan, Process};
use super::trace::Trace;
use crate::host;
use crate::ledger::{Event, Ledger};
use crate::server::{Node, Reply, SLOTS, Session, SlotTable};

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

/// All that a run knows.
pub(crate) struct State {
    pub(super) nodes: Vec<Server>,
    slots: Arc<Mutex<SlotTable>>,
    pub(super) processes: Vec<Process>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) last_connection: u64,
    pub(super) trace: Trace,
    pub(super) rng: Rng,
    pub(super) ledger: Ledger,
    /// What ran on the servers, in order.
    pub(super) events: Vec<Event>,
    pub(super) records: Vec<Record>,
    /// When nothing else was done, from and to.
    pub(super) blocked: Vec<(Instant, Instant)>,
    /// What must not be.
    pub(super) violations: Vec<String>,
    /// How often the password changed, on the servers and as the clients know it.
    pub(super) password: (u64, u64),
    pub(super) decisions: u64,
    /// Units of changes that did not run, by key.
    pub(super) lost: BTreeMap<Vec<u8>, i128>,
    /// Whether anything may have been lost.
    pub(super) is_lossy: bool,
    /// Whether anything may have been held up for longer than somebody waits for it.
    pub(super) is_held_up: bool,
    /// When counters last changed by what no process did.
    pub(super) disturbed: Option<Instant>,
    pub(super) has_twins: bool,
    pub(super) is_crowd: bool,
    /// By how much the servers' clocks were set forward, in µs.
    pub(super) step_us: i64,
}

/// A server, and what is wrong with it.
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) is_up: bool,
    pub(super) frozen_until: Option<Instant>,
    pub(super) slow_ms: u64,
    pub(super) mishaps: Mishaps,
    /// Connections since it last decided something.
    pub(super) attempts: u32,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) cost: u64,
    pub(super) user: u8,
    pub(super) process: usize,
    pub(super) began: Instant,
    /// When its handler was called, or it was answered without.
    pub(super) decided: Option<Instant>,
    pub(super) decision: Option<tollgate::Decision>,
    pub(super) is_admitted: bool,
    pub(super) status: Option<u16>,
    pub(super) ended: Option<Instant>,
    /// Its caller went away.
    pub(super) has_left: bool,
    /// An answer, a charge or a refund of it may have been lost.
    pub(super) is_excused: bool,
    pub(super) charged: u64,
    pub(super) refunded: u64,
    /// It waited on a runtime of its own.
    pub(super) is_elsewhere: bool,
}

impl State {
    pub(super) fn new(plan: &Plan, nodes: Vec<Node>, slots: Arc<Mutex<SlotTable>>, keeps_lines: bool) -> Self {
        let nodes = nodes.into_iter().map(Server::new).collect();
        let rng = Rng::with_seed(plan.seed ^ 0x5eed_0fde_1a75);
        Self {
            nodes,
            slots,
            processes: plan.setting.processes.clone(),
            connections: BTreeMap::new(),
            last_connection: 0,
            trace: Trace::new(keeps_lines),
            rng,
            ledger: Ledger::default(),
            events: Vec::new(),
            records: Vec::new(),
            blocked: Vec::new(),
            violations: Vec::new(),
            password: (0, 0),
            decisions: 0,
            lost: BTreeMap::new(),
            is_lossy: false,
            is_held_up: false,
            disturbed: None,
            has_twins: plan.setting.policies.iter().any(|policy| policy.is_twin),
            is_crowd: plan.setting.is_crowd,
            step_us: 0,
        }
    }

    /// Who has which slot.
    pub(super) fn slots(&self) -> MutexGuard<'_, SlotTable> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The breakers of nodes that have so many slots that any few keys ask them.
    pub(super) fn asked(&self, breakers: Vec<(String, BreakerState)>) -> impl Iterator<Item = BreakerState> {
        let mut slots: BTreeMap<String, u16> = BTreeMap::new();
        let table = self.slots();
        for (first, last, owner) in if breakers.is_empty() { Vec::new() } else { table.ranges() } {
            *slots.entry(table.address(owner).to_owned()).or_default() += last - first + 1;
        }
        drop(table);
        let has_many = move |address: &String| slots.get(address).is_some_and(|slots| *slots > SLOTS / 8);
        breakers.into_iter().filter(move |(address, _)| has_many(address)).map(|(_, state)| state)
    }

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

    /// Runs a command on a node.
    pub(super) fn execute(&mut self, node: usize, session: &mut Session, command: &[Bytes]) -> Vec<u8> {
        let now_us = self.clock();
        let reply = self.nodes[node].node.execute(session, command, now_us);
        if let Reply::Error(text) = &reply {
            self.is_refused(text);
        }
        for call in self.nodes[node].node.take_calls() {
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
            self.trace.say(format_args!("  {}: {what:?}, {remaining:?} left", key.escape_ascii()));
        }
        self.events.extend(events);
    }

    fn is_refused(&mut self, text: &str) {
        if let Some(code) = REFUSALS.iter().find(|code| text.contains(*code)) {
            self.trace.meet(code);
        }
    }

    /// What is on its way now may be lost.
    pub(super) fn excuse(&mut self) {
        let now = Instant::now();
        let is_under_way =
            |record: &&mut Record| record.ended.is_none_or(|ended| now - ended < Duration::from_secs(13));
        for record in self.records.iter_mut().filter(is_under_way) {
            (record.is_excused, self.is_lossy) = (true, true);
        }
    }

    /// Notes something that must not be.
    pub(super) fn violate(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.say(format_args!("VIOLATION: {what}"));
        self.violations.push(what.to_string());
    }

    /// For how long nothing was done between two times.
    pub(super) fn blocked_between(&self, from: Instant, to: Instant) -> Duration {
        let overlaps =
            self.blocked.iter().map(|(start, end)| end.min(&to).saturating_duration_since(*start.max(&from)));
        overlaps.sum()
    }
}

impl Server {
    fn new(node: Node) -> Self {
        Self { node, is_up: true, frozen_until: None, slow_ms: 0, mishaps: Mishaps::new(), attempts: 0 }
    }
}
