//! One decision: from checks to a reply within the timeout, and from the reply to a decision and a receipt; and changes to
//! what was taken, when it is known what the request really costs.
//!
//! Changes are queued before [`Engine::settle`] returns, in their order, so that a caller may drop the future at once: it
//! is called from `Drop` too. A change that surely was not done is sent again; if its result is not known, it is an error.
//!
//! Windows of a calendar are named by the process, and the server's clock decides between them: see
//! `lua/calendar_window.lua`. They are those around the time that [`ServerTime`] keeps. So that clocks may differ by
//! any length, the difference is learned from the replies that say so: the first decision after a clock was set by more
//! than a window fails, and those after it do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_redis::redis::{Arg, Cmd, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::pipeline::{Job, JobReply, NoReply, Timeout, stopped};
use super::servers::{PendingReply, Servers};
use super::wire::{ReplyPart, Request, Verdict, applied_change, no_decision, step_of_one};
use crate::core::{Error, kept};
use crate::store::around::settle_each;
use crate::store::bans::{changed, with_bans};
use crate::store::clock::micros;
use crate::store::deny::Refusals;
use crate::store::evaluate::{decided, decided_one};
use crate::store::{
    Change, Check, Clock, Deadline, DenyCacheBuilder, MaybeFuture, Receipt, Settlement, Settling, StoreDecision,
    StoreId, SystemClock,
};

/// What all clones of a store share: its servers, its settings and the cached refusals.
pub(super) struct Engine {
    /// Identifies the store in receipts: a receipt of another store changes nothing here.
    pub(super) id: StoreId,
    /// Where decisions are made.
    pub(super) servers: Servers,
    /// What every key starts with.
    pub(super) prefix: String,
    /// How long one decision may take, from its start to the reply.
    pub(super) budget: Duration,
    /// The time that decisions are made at.
    pub(super) time: ServerTime,
    /// The refusals that are cached around the store.
    pub(super) refusals: Arc<Refusals>,
}

impl Engine {
    /// Returns the engine of a new store.
    ///
    /// # Errors
    ///
    /// If the settings of the deny cache are not valid.
    pub(super) fn new(
        servers: Servers,
        prefix: String,
        budget: Duration,
        time: ServerTime,
        deny_cache: Option<DenyCacheBuilder<()>>,
    ) -> Result<Arc<Self>, Error> {
        let id = StoreId::new();
        let none = || Ok(((), Refusals::new(id, Duration::ZERO, 1, Box::new(SystemClock::new()))));
        let ((), refusals) = deny_cache.map_or_else(none, |cache| cache.refusals(id))?;
        Ok(Arc::new(Self { id, servers, prefix, budget, time, refusals: Arc::new(refusals) }))
    }

    /// Has a request decided, in one call with others of the same moment, within the timeout from now on and by the
    /// deadline.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, or no server to call, or the server refuses the call. The
    /// error contains whether the reply may still come: see [`refund_late`](Self::refund_late).
    ///
    /// # Cancellation
    ///
    /// A request that was not sent yet is dropped. Units taken by one that was sent stay taken.
    pub(super) fn call(&self, request: Request, deadline: Deadline) -> PendingReply {
        let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
        self.servers.ask(Job::new(request, Timeout::by(self.budget, deadline), slot))
    }

    /// Sends a command of its own to the server that has its key, once, within the timeout and by the deadline.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no connection, or the server refuses the command, which is the error's source.
    ///
    /// # Cancellation
    ///
    /// The command may have been sent.
    pub(super) async fn command(&self, command: Cmd, deadline: Deadline) -> Result<Value, Error> {
        if let Some(error) = not_shared(&command) {
            return Err(error);
        }
        let slot = key_of(&command).map_or(0, |key| self.servers.slot_of(key));
        self.command_for(slot, command, deadline).await
    }

    /// As [`command`](Self::command), to the server that has a slot.
    pub(super) async fn command_for(&self, slot: u16, command: Cmd, deadline: Deadline) -> Result<Value, Error> {
        let job = Job::command(command, Timeout::by(self.budget, deadline), slot);
        match self.servers.ask(job).await {
            Ok(JobReply::Command(value)) => Ok(value),
            Ok(JobReply::Script(_)) => Err(no_decision()),
            Err(NoReply { error, .. }) => Err(error),
        }
    }

    /// Sends changes in their order, and returns a future of all results. For a receipt of
    /// another store it is ready and empty.
    ///
    /// # Errors
    ///
    /// The first error: of a change that was not sent, or whose result is not known. It keeps no
    /// other change from being sent.
    ///
    /// # Cancellation
    ///
    /// Dropping the future cancels nothing.
    pub(super) fn settle(&self, receipt: &Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.id {
            return MaybeFuture::Ready(Ok(Vec::new()));
        }
        settle_each(receipt, changes, |before, taken, change| {
            let (taken, change) = changed(taken, change);
            let request = Request::adjustment(&self.prefix, before, &taken, change, || self.time.now_ms());
            let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
            let sent = self.servers.settle(Job::new(request, Timeout::of_settlement(self.budget), slot));
            let taken = taken.into_owned();
            MaybeFuture::pending(async move {
                let part = sent?.await.unwrap_or_else(|_| Err(stopped()))?;
                Ok(vec![applied_change(&taken, change, part)?])
            })
        })
    }

    /// Refunds in the background all that a receipt proves to be taken. Cached refusals of its counters are dropped:
    /// they may have units again.
    pub(super) fn refund_all(&self, receipt: &Receipt) {
        let change = Change::Refund(u64::MAX);
        receipt.items().iter().for_each(|taken| self.refusals.changed(&taken.counter, change));
        let all = |check| Settlement::new(check, change);
        let changes: SmallVec<[Settlement; 4]> = (0..receipt.items().len()).map(all).collect();
        drop(self.settle(receipt, &changes));
    }

    /// Refunds what was taken if the reply comes after its caller's timeout. Returns the
    /// caller's error.
    pub(super) fn refund_late(self: &Arc<Self>, checks: &[Check], no_reply: NoReply) -> Error {
        let NoReply { error, late, .. } = no_reply;
        // That of the caller may end before the reply comes, where the store has one of its own.
        let runtime = || self.servers.settings().runtime.clone().or_else(|| Handle::try_current().ok());
        if let Some((mut late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (engine, checks) = (Arc::clone(self), kept(checks));
            // It ends with the connection at the latest, which is not read for long.
            runtime.spawn(async move {
                let part = loop {
                    match late.await {
                        Ok(part) => break part,
                        // The caller's timer was earlier than that of the connection.
                        Err(NoReply { late: Some(later), .. }) => late = later,
                        Err(_) => return,
                    }
                };
                let Ok(StoreDecision { receipt, .. }) = engine.decided(&checks, part) else { return };
                engine.refund_all(&receipt);
            });
        }
        error
    }

    /// Works out the decision and the receipt from what the script found.
    ///
    /// # Errors
    ///
    /// If the reply is not one to these checks.
    pub(super) fn decided(&self, checks: &[Check], part: JobReply) -> Result<StoreDecision, Error> {
        let part = part.script()?;
        let now_us = part.now_us();
        decided_by(self.id, checks, part).inspect_err(|_| self.time.learn(now_us))
    }
}

/// Commands that change what a connection is, have no reply of their own, or hold up all that others send.
const NOT_SHARED: [&str; 32] = [
    "ASKING",
    "AUTH",
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "CLIENT",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "PUNSUBSCRIBE",
    "QUIT",
    "READONLY",
    "REPLICAOF",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "UNSUBSCRIBE",
    "WAIT",
    "WAITAOF",
    "WATCH",
];

/// Returns the error of a command that cannot share a connection with decisions.
fn not_shared(command: &Cmd) -> Option<Error> {
    let Some(Arg::Simple(name)) = command.args_iter().next() else {
        return Some(Error::invalid("the command is empty: give it a name"));
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let text = format!("{name} cannot share a connection with decisions: send it on one of your own");
    NOT_SHARED.contains(&&*name).then(|| Error::invalid(text))
}

/// Returns the first key of a command: its first argument, or that of a script or function.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let argument = |place| match command.args_iter().nth(place)? {
        Arg::Simple(argument) => Some(argument),
        _ => None,
    };
    let name = argument(0)?.get(..4).unwrap_or_default().to_ascii_uppercase();
    argument(if name == *b"EVAL" || name == *b"FCAL" { 3 } else { 1 })
}

/// As [`Engine::decided`]. The decisions of one call name it, as they do if they fail together: that is one failure.
fn decided_by(id: StoreId, checks: &[Check], part: ReplyPart) -> Result<StoreDecision, Error> {
    let call = part.call;
    let read = || {
        if let [check @ Check { ban: None, .. }] = checks {
            return Ok(decided_one(id, check, &step_of_one(check, part)?));
        }
        let checks = with_bans(checks);
        let verdict = Verdict::of(&checks, part)?;
        Ok(decided(id, &checks, &verdict.steps, verdict.refused))
    };
    match read() {
        Ok(StoreDecision { decision, receipt }) => Ok(StoreDecision { decision, receipt: receipt.of_call(call) }),
        Err(error) => Err(call.into_iter().fold(error, Error::of_call)),
    }
}

/// Clocks that differ by less are taken for the same: a reply takes some time.
const ALIKE_MS: u64 = 1_000;

/// The clock of decisions: the one that the store was built with, or that of the servers.
pub(super) struct ServerTime {
    clock: Option<Arc<dyn Clock>>,
    /// How far the clock of the server that replied last is ahead of the system's, in milliseconds.
    ahead: AtomicI64,
}

impl ServerTime {
    /// The time of servers whose clocks are as the system's, or that of a clock.
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, ahead: AtomicI64::new(0) }
    }

    /// Returns the time in milliseconds since the Unix epoch.
    pub(super) fn now_ms(&self) -> u64 {
        match &self.clock {
            Some(clock) => micros(clock.wall()) / 1_000,
            None => system_ms().saturating_add_signed(self.ahead.load(Ordering::Relaxed)),
        }
    }

    /// Learns the time from a reply that has just come and cannot be used, in microseconds.
    pub(super) fn learn(&self, now_us: u64) {
        let replied = now_us / 1_000;
        if self.clock.is_none() && self.now_ms().abs_diff(replied) > ALIKE_MS {
            // Both are far below 2^63.
            self.ahead.store(replied.cast_signed() - system_ms().cast_signed(), Ordering::Relaxed);
        }
    }
}

/// Returns the system's time in milliseconds since the Unix epoch.
fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1_000).saturating_add(since.subsec_millis().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_is_learned_from_a_reply_of_another_time() {
        let time = ServerTime::new(None);
        assert!(time.now_ms().abs_diff(system_ms()) < 1_000);
        for [behind, ahead] in [[0, 7_200_000], [7_200_000, 0]] {
            let server = || system_ms() + ahead - behind;
            time.learn(server() * 1_000);
            assert!(time.now_ms().abs_diff(server()) < 1_000);
            // A late reply changes nothing.
            time.learn((server() - 500) * 1_000);
            assert!(time.now_ms().abs_diff(server()) < 1_000);
        }
    }

    #[test]
    fn the_clock_of_a_store_is_that_of_its_servers() {
        let time = ServerTime::new(Some(Arc::new(|| Duration::from_secs(5))));
        time.learn(9_000_000_000);
        assert_eq!(time.now_ms(), 5_000);
    }
}
