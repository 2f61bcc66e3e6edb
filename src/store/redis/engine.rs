//! Decisions within a timeout, and settlements.
//!
//! Changes are queued, in order, before [`Engine::settle`] returns. So a caller may drop the future at once, and `Drop`
//! can settle. A change that was certainly not executed is sent again. An unknown result is an error.
//!
//! The process names the windows of a calendar around the time of [`ServerTime`], and the server's clock picks one: see
//! `lua/calendar_window.lua`. Clocks may differ by any length because replies reveal the difference: after a clock was
//! set by a window or more, one decision fails and later ones do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Context;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_redis::redis::{Arg, Cmd, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::pipeline::{IsReply, Job, JobReply, NoReply, Timeout, stopped};
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

pub(super) struct Engine {
    pub(super) id: StoreId,
    pub(super) servers: Servers,
    pub(super) prefix: String,
    pub(super) budget: Duration,
    pub(super) time: ServerTime,
    pub(super) refusals: Arc<Refusals>,
}

impl Engine {
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

    /// Dropping the future also drops the request if it was not sent yet. Units taken by a request that was sent stay
    /// taken.
    pub(super) fn call(&self, request: Request, deadline: Deadline) -> PendingReply {
        let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
        self.servers.ask(Box::new(Job::new(request, Timeout::by(self.budget, deadline), slot)))
    }

    /// Sends a decision, unless too much is in flight: then it is queued.
    pub(super) fn begin(&self, checks: &[Check], timeout: Timeout, cx: &Context<'_>) -> Result<PendingReply, Error> {
        let request = Request::new(&self.prefix, &with_bans(checks), || self.time.now_ms());
        let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
        self.servers.begin(Job::new(request, timeout, slot), cx)
    }

    /// Sends a command, once, to the server that has its key. It may be sent even if the future is dropped.
    pub(super) async fn command(&self, command: Cmd, is_reply: Option<IsReply>) -> Result<Value, Error> {
        if let Some(error) = not_shared(&command) {
            return Err(error);
        }
        let slot = key_of(&command).map_or(0, |key| self.servers.slot_of(key));
        let job = Job::command(command, is_reply, Timeout::by(self.budget, Deadline::none()), slot);
        match self.servers.ask(job).await {
            Ok(JobReply::Command(value)) => Ok(value),
            Ok(JobReply::Script(_)) => Err(no_decision()),
            Err(NoReply { error, .. }) => Err(error),
        }
    }

    /// Sends changes in order. Dropping the future cancels nothing. After an error, the other changes are still sent.
    pub(super) fn settle(&self, receipt: &Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.id {
            return MaybeFuture::Ready(Ok(Vec::new()));
        }
        settle_each(receipt, changes, |before, taken, change| {
            let (taken, change) = changed(taken, change);
            let request = Request::adjustment(&self.prefix, before, &taken, change, || self.time.now_ms());
            let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
            let sent = self.servers.settle(Box::new(Job::new(request, Timeout::for_settlement(self.budget), slot)));
            let taken = taken.into_owned();
            MaybeFuture::pending(async move {
                let part = sent?.await.unwrap_or_else(|_| Err(stopped()))?;
                Ok(vec![applied_change(&taken, change, part)?])
            })
        })
    }

    pub(super) fn refund_all(&self, receipt: &Receipt) {
        let change = Change::Refund(u64::MAX);
        // The counters of the receipt may have units again.
        receipt.items().iter().for_each(|taken| self.refusals.changed(&taken.counter, change));
        let all = |check| Settlement::new(check, change);
        let changes: SmallVec<[Settlement; 4]> = (0..receipt.items().len()).map(all).collect();
        drop(self.settle(receipt, &changes));
    }

    /// Refunds units if the reply arrives after the timeout. Returns the caller's error.
    pub(super) fn refund_late(self: &Arc<Self>, checks: &[Check], no_reply: NoReply) -> Error {
        let NoReply { error, late, .. } = no_reply;
        // The caller's runtime may end before the reply arrives. The store's runtime, if it has one, does not.
        let runtime = || self.servers.settings().runtime.clone().or_else(|| Handle::try_current().ok());
        if let Some((mut late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (engine, checks) = (Arc::clone(self), kept(checks));
            // The task ends with the connection at the latest, and that connection is read for a short time only.
            runtime.spawn(async move {
                let part = loop {
                    match late.await {
                        Ok(part) => break part,
                        // The caller's timer fired before the connection's.
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

    /// If `part` does not match the checks, learns the server's time.
    pub(super) fn decided(&self, checks: &[Check], part: JobReply) -> Result<StoreDecision, Error> {
        let part = part.script()?;
        let now_us = part.now_us();
        decided_by(self.id, checks, part).inspect_err(|_| self.time.learn(now_us))
    }
}

/// Commands that change a connection's state, have no reply of their own, or block other commands.
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

fn not_shared(command: &Cmd) -> Option<Error> {
    let Some(Arg::Simple(name)) = command.args_iter().next() else {
        return Some(Error::invalid("the command is empty: it needs a name"));
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let text = format!("{name} cannot share a connection with decisions: send it on one of your own");
    NOT_SHARED.contains(&&*name).then(|| Error::invalid(text))
}

/// Returns the first key: the first argument, or the first key argument of a script or function.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let argument = |place| match command.args_iter().nth(place)? {
        Arg::Simple(argument) => Some(argument),
        _ => None,
    };
    let name = argument(0)?.get(..4).unwrap_or_default().to_ascii_uppercase();
    argument(if name == *b"EVAL" || name == *b"FCAL" { 3 } else { 1 })
}

/// All decisions and errors of a call name the call, so that layers count one failure.
fn decided_by(id: StoreId, checks: &[Check], mut part: ReplyPart) -> Result<StoreDecision, Error> {
    let call = part.call;
    let mut read = || {
        if let [check @ Check { ban: None, .. }] = checks {
            return Ok(decided_one(id, check, &step_of_one(check, &mut part)?));
        }
        let checks = with_bans(checks);
        let verdict = Verdict::evaluate(&checks, &mut part)?;
        Ok(decided(id, &checks, &verdict.steps, verdict.refused))
    };
    // A decision is large, so it is not moved.
    let mut decided: Result<StoreDecision, Error> = read();
    match &mut decided {
        Ok(decided) => decided.receipt.set_call(call),
        Err(error) => *error = call.into_iter().fold(error.shared(), Error::with_call),
    }
    decided
}

/// Smaller differences of clocks are ignored, because a reply takes time.
const ALIKE_MS: u64 = 1_000;

pub(super) struct ServerTime {
    clock: Option<Arc<dyn Clock>>,
    /// How far the server's clock is ahead of the system's, in milliseconds.
    ahead: AtomicI64,
}

impl ServerTime {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, ahead: AtomicI64::new(0) }
    }

    pub(super) fn now_ms(&self) -> u64 {
        match &self.clock {
            Some(clock) => micros(clock.wall()) / 1_000,
            None => system_ms().saturating_add_signed(self.ahead.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn learn(&self, now_us: u64) {
        let replied = now_us / 1_000;
        if self.clock.is_none() && self.now_ms().abs_diff(replied) > ALIKE_MS {
            // Both are far below 2^63.
            self.ahead.store(replied.cast_signed() - system_ms().cast_signed(), Ordering::Relaxed);
        }
    }
}

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
