//! A run: servers, connections to them, processes with callers, faults, and what users of all that must see.

mod caller;
mod check;
mod client;
mod draw;
mod fault;
mod net;
mod plan;
mod run;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;
use tollgate::Limiter;

use crate::host;
use crate::server::SlotTable;
use caller::Record;
use net::{Connection, Server};

pub use plan::{Plan, What};
pub use run::{Report, run};
pub use trace::Trace;

/// What all of a run share.
#[derive(Clone)]
struct World(Arc<Mutex<State>>);

impl World {
    /// The state, for as long as nothing is awaited.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever reads the system's clock next, it is this.
        host::set_clock(u64::try_from(state.trace.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if state.is_troubled() || state.is_torn() {
            state.troubled = state.troubled.max(Some(Instant::now()));
        }
        state
    }
}

/// All that a run knows.
struct State {
    plan: Plan,
    nodes: Vec<Server>,
    slots: Arc<Mutex<SlotTable>>,
    /// Slots, and nodes that had them before they moved.
    has_had: BTreeSet<(u16, usize)>,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    trace: Trace,
    rng: Rng,
    records: Vec<Record>,
    /// When the thread was blocked, from and to.
    blocked: Vec<(Instant, Instant)>,
    /// When callers did not poll, from and to.
    idle: Vec<(Instant, Instant)>,
    /// What must not be.
    violations: Vec<String>,
    /// How often the password changed, on the servers and as clients know it.
    password: (u64, u64),
    /// When requests may last have failed for a fault.
    troubled: Option<Instant>,
    /// Connections that were lost, until something else went wrong.
    losses: Option<u32>,
    /// When counters changed by other than requests, from and to: resets, data that were lost, clocks that stepped.
    disturbed: Vec<(Instant, Instant)>,
    /// By how many µs the clocks of servers are ahead, each from a time on.
    steps_us: Vec<(Instant, i64)>,
    /// Whether a call or its reply may have been lost.
    is_lossy: bool,
    /// Whether policies of a process were replaced by others.
    is_replaced: bool,
    /// When counters of users were changed other than by requests, and whose.
    changes: Vec<(Instant, u8)>,
    /// Whether a reset or a lift failed, and may yet come.
    may_be_reset: bool,
    /// Since when each process admits all without its store.
    open_since: Vec<Option<Instant>>,
    /// Of each user, until when it surely is banned, and when that was learned.
    banned: BTreeMap<u8, (Instant, Instant)>,
    /// Says what is left of counters, from no cache, once it was asked.
    auditor: Option<Limiter>,
}

impl State {
    /// Who has which slot.
    fn slots(&self) -> MutexGuard<'_, SlotTable> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something that must not be.
    fn violate(&mut self, what: fmt::Arguments<'_>) {
        self.trace.say(format_args!("VIOLATION: {what}"));
        self.violations.push(what.to_string());
    }

    /// By how many µs the clocks of servers were ahead at a time.
    fn ahead_us(&self, at: Instant) -> i64 {
        self.steps_us.iter().rfind(|(since, _)| *since <= at).map_or(0, |(_, ahead)| *ahead)
    }

    /// How much later slots expire because the servers' clocks stepped back. Runs whose clocks step by hours have none.
    fn stepped_back(&self) -> Duration {
        let last = self.ahead_us(Instant::now());
        let most = self.steps_us.iter().map(|(_, ahead)| *ahead).fold(0, i64::max);
        Duration::from_micros(most.abs_diff(last)).min(Duration::from_secs(120))
    }

    /// The servers' time then, in µs since the epoch.
    fn clock_us(&self, at: Instant) -> u64 {
        let elapsed = self.trace.elapsed().saturating_sub(at.elapsed());
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        (host::START * 1_000_000 + micros).saturating_add_signed(self.ahead_us(at))
    }

    /// Counters change now by other than requests.
    fn disturb(&mut self) {
        self.disturbed.push((Instant::now(), Instant::now()));
    }

    /// Whether counters changed, within a span, by other than requests.
    fn is_disturbed(&self, from: Instant, to: Instant) -> bool {
        self.disturbed.iter().any(|(start, end)| *start <= to && *end >= from)
    }

    /// Something went wrong for which a request may fail.
    fn may_fail(&mut self) {
        (self.troubled, self.losses) = (self.troubled.max(Some(Instant::now())), None);
    }

    /// Whether nothing was wrong for a while before a time, and since: all that was late has come by then.
    fn is_calm_since(&self, since: Instant) -> bool {
        self.troubled.is_none_or(|at| at + Duration::from_secs(3) <= since)
    }

    /// Whether keys of one request may be on two nodes.
    fn is_torn(&self) -> bool {
        let has_several = self.plan.setting.policies.len() > 1 || self.plan.setting.policies[0].ban.is_some();
        has_several && self.nodes.len() > 1 && self.slots().moves().next().is_some()
    }

    /// For how long nothing was done between two times.
    fn blocked_between(&self, from: Instant, to: Instant) -> Duration {
        between(&self.blocked, from, to)
    }
}

/// How much of some spans is between two times.
fn between(spans: &[(Instant, Instant)], from: Instant, to: Instant) -> Duration {
    spans.iter().map(|(start, end)| end.min(&to).saturating_duration_since(*start.max(&from))).sum()
}
