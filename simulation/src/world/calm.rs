//! While all is well, requests are decided by the store.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::Source;

use super::check::TIMERS;
use super::plan::{Around, Ask, By, Fault, Mishap, Patience};
use super::record::Record;
use super::server::Server;
use super::state::State;

/// After something went wrong: all that was late has come by then, and what was lost is made anew.
const UNREST: Duration = Duration::from_secs(3);

/// Failures in a row that open a breaker.
const FAILURES: u32 = 5;

/// For so long the layers of the runs admit all.
pub(super) const ALLOWED: Duration = Duration::from_secs(1);

impl Fault {
    /// Whether it is no reason for a request to fail.
    pub(super) fn is_harmless(self) -> bool {
        match self {
            // Until a decision meets it.
            Self::Next(_, mishap) => mishap.ends_connections(),
            Self::FlushScripts(_) | Self::Clock(_) | Self::Evicts(..) | Self::Moves(_) | Self::Migrates(..) => true,
            _ => false,
        }
    }
}

impl Mishap {
    /// Whether the connection ends with it, and nothing else goes wrong.
    pub(super) fn ends_connections(self) -> bool {
        matches!(self, Self::CutBefore | Self::CutAfter | Self::Half | Self::Stray | Self::StrayBytes)
    }
}

impl State {
    /// Something goes wrong for which requests may fail, or did until now.
    pub(super) fn may_fail(&mut self) {
        self.last_failure = Some(Instant::now());
        self.losses = None;
    }

    /// A connection is lost, for which what is under way on it fails.
    pub(super) fn loses_a_connection(&mut self) {
        self.last_failure = Some(Instant::now());
        self.losses = self.losses.map(|losses| losses + 1);
    }

    /// A connection that is lost is one failure, however many waited for it: a few open no breaker.
    pub(super) fn checks_breakers(&mut self, ask: &Ask, is_asked: bool) {
        let is_quick = self.processes[ask.process].timeout() >= self.slowest();
        if let Some(losses) = self.losses.filter(|losses| *losses < FAILURES && is_quick && !is_asked) {
            self.violate(format_args!("a breaker is open after {losses} lost connections"));
        }
    }

    /// Nobody is admitted without the store for longer than is allowed.
    pub(super) fn checks_allowed(&mut self, record: &Record, source: Source) {
        let budget = self.processes[record.process].timeout();
        if record.began.elapsed() > budget + TIMERS {
            // It was admitted before, and did not look.
            return;
        }
        if source != Source::FailOpen {
            self.open_since[record.process] = None;
            return;
        }
        let since = *self.open_since[record.process].get_or_insert_with(Instant::now);
        // What was answered while a thread was blocked, or a caller did not poll, is learned after it.
        let late = self.blocked_between(since, Instant::now()) + self.idle_between(since, Instant::now());
        if since.elapsed() > ALLOWED + TIMERS + late {
            let since = since.elapsed();
            self.violate(format_args!(
                "{} is admitted without the store, as others have been for {since:?}",
                record.name()
            ));
        }
    }

    /// What connecting, loading a script and asking may take: for a Cluster, also to find out which node to ask.
    fn slowest(&self) -> Duration {
        Duration::from_millis(if self.nodes.len() > 1 { 100 } else { 50 })
    }

    /// Whether nothing was wrong since some time, and for a while before.
    fn is_calm_since(&self, since: Instant) -> bool {
        let is_over = |at: Instant| at + UNREST <= since;
        let is_well = |server: &Server| !server.is_troubled() && server.frozen_until.is_none_or(is_over);
        self.last_failure.is_none_or(is_over) && self.password.0 == self.password.1 && self.nodes.iter().all(is_well)
    }

    /// Whether keys of one request may be on two nodes: a ban has one of its own.
    fn is_torn(&self) -> bool {
        let has_ban = self.policies.iter().any(|policy| policy.ban.is_some());
        (self.policies.len() > 1 || has_ban) && self.nodes.len() > 1 && self.slots().moves().next().is_some()
    }

    /// Nobody is refused or admitted without the store while all is well.
    pub(super) fn checks_calm(&mut self, place: usize, ask: &Ask, is_asked: bool) {
        let record = &self.records[place];
        let by = record.decision.as_ref().map(tollgate::Decision::source);
        if by.is_some_and(|by| by != Source::FailOpen) {
            self.open_since[record.process] = None;
        }
        let has_failed = !record.is_admitted && by.is_none() || matches!(by, Some(Source::Fallback | Source::FailOpen));
        // Shares are admitted whenever no ratio is known.
        let has_ratios = matches!(self.processes[record.process].around, Around::Ratio(_));
        let is_usual = !has_ratios && ask.patience == Patience::Waits && record.is_asked && !record.is_elsewhere;
        let has_accounts = self.policies.iter().any(|policy| policy.by == By::Account);
        if !has_failed || !is_usual || has_accounts || self.is_torn() || !self.is_calm_since(record.began) {
            return;
        }
        let waited = record.decided.unwrap_or_else(Instant::now) - record.began;
        let budget = self.processes[record.process].timeout();
        // Who fails for a breaker has not waited.
        if waited < budget && is_asked || budget >= self.slowest() {
            let (name, status) = (record.name(), record.status);
            self.violate(format_args!("{name} fails after {waited:?} while all is well: {status:?} by {by:?}"));
        }
    }
}
