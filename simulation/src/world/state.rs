//! What the world is like at a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;
use tollgate::store::BreakerState;

use super::bans::Bans;
use super::connection::Connection;
use super::plan::{Plan, PolicyPlan, Process};
use super::record::Record;
use super::reported::Reported;
use super::server::Server;
use super::trace::Trace;
use crate::ledger::{Event, Ledger};
use crate::server::{Node, SLOTS, SlotTable};

/// All that a run knows.
pub(crate) struct State {
    pub(super) nodes: Vec<Server>,
    slots: Arc<Mutex<SlotTable>>,
    /// Slots, and nodes that had them before they moved.
    pub(super) has_had: BTreeSet<(u16, usize)>,
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
    /// When callers did not poll, from and to.
    pub(super) idle: Vec<(Instant, Instant)>,
    /// What must not be.
    pub(super) violations: Vec<String>,
    /// How often the password changed, on the servers and as the clients know it.
    pub(super) password: (u64, u64),
    pub(super) decisions: u64,
    /// Units that were to go back and did not, by key.
    pub(super) lost: BTreeMap<Vec<u8>, i128>,
    /// Whether anything may have been lost.
    pub(super) is_lossy: bool,
    /// Up to when something was in the way, as far as that is over.
    pub(super) troubled_until: Option<Instant>,
    /// Whether policies of a process were replaced by others.
    pub(super) is_replaced: bool,
    /// When counters last changed by what no process did.
    pub(super) disturbed: Option<Instant>,
    pub(super) policies: Vec<PolicyPlan>,
    /// When something last went wrong for which a request may fail.
    pub(super) last_failure: Option<Instant>,
    /// How often connections were lost, if nothing else went wrong.
    pub(super) losses: Option<u32>,
    /// Since when each process admits without its store.
    pub(super) open_since: Vec<Option<Instant>>,
    pub(super) is_crowd: bool,
    /// How many resets are under way.
    pub(super) resets: u32,
    pub(super) bans: Bans,
    pub(super) reported: Reported,
    /// By how much the servers' clocks were set forward, in µs.
    pub(super) step_us: i64,
}

impl State {
    pub(super) fn new(plan: &Plan, nodes: Vec<Node>, slots: Arc<Mutex<SlotTable>>, keeps_lines: bool) -> Self {
        let nodes = nodes.into_iter().map(Server::new).collect();
        let rng = Rng::with_seed(plan.seed ^ 0x5eed_0fde_1a75);
        Self {
            nodes,
            slots,
            has_had: BTreeSet::new(),
            processes: plan.setting.processes.clone(),
            connections: BTreeMap::new(),
            last_connection: 0,
            trace: Trace::new(keeps_lines),
            rng,
            ledger: Ledger::default(),
            events: Vec::new(),
            records: Vec::new(),
            blocked: Vec::new(),
            idle: Vec::new(),
            violations: Vec::new(),
            password: (0, 0),
            decisions: 0,
            lost: BTreeMap::new(),
            is_lossy: false,
            troubled_until: None,
            is_replaced: false,
            disturbed: None,
            policies: plan.setting.policies.clone(),
            last_failure: None,
            losses: Some(0),
            open_since: vec![None; plan.setting.processes.len()],
            is_crowd: plan.setting.is_crowd,
            resets: 0,
            bans: Bans::default(),
            reported: Reported::default(),
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
        between(&self.blocked, from, to)
    }

    /// For how long callers did not poll between two times.
    pub(super) fn idle_between(&self, from: Instant, to: Instant) -> Duration {
        between(&self.idle, from, to)
    }
}

/// How much of some spans is between two times.
fn between(spans: &[(Instant, Instant)], from: Instant, to: Instant) -> Duration {
    spans.iter().map(|(start, end)| end.min(&to).saturating_duration_since(*start.max(&from))).sum()
}
