//! Decisions over keys of several slots of a Cluster: the checks of each slot are decided apart, at
//! the same time.
//!
//! No script can have keys of two slots. So checks are grouped by slot, each part is a request of
//! its own, and the parts become one decision here. If one part is refused or fails, what the
//! others took is refunded: for about a round trip these units are taken, and other requests may be refused
//! meanwhile. The request is still admitted as a whole or not at all, and no limit is ever
//! exceeded.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::task::JoinHandle;

use super::engine::Engine;
use super::pipeline::stopped;
use super::wire::{Request, Verdict, redis_key};
use crate::core::algorithm::Step;
use crate::core::{Checks, Error};
use crate::store::bans::with_bans;
use crate::store::evaluate::decided;
use crate::store::{Check, Deadline, StoreDecision};

/// The checks of one slot.
struct SlotGroup {
    /// The slot of all its keys.
    slot: u16,
    /// The places of the checks in the request, in rising order.
    places: SmallVec<[usize; 4]>,
    /// The checks, in the same order.
    checks: SmallVec<[Check; 2]>,
}

impl Engine {
    /// Decides the parts of a request, all or nothing.
    ///
    /// # Errors
    ///
    /// The error of the first part that failed. If the primary of any part would not be called, no
    /// part is sent.
    ///
    /// # Cancellation
    ///
    /// It continues in a task of its own, as what is to be refunded is known only when all parts are
    /// decided.
    pub(super) fn decide_apart(
        self: Arc<Self>,
        checks: Checks,
        deadline: Deadline,
    ) -> impl Future<Output = Result<StoreDecision, Error>> {
        let deciding = tokio::spawn(self.decide_parts(checks, deadline));
        async { deciding.await.unwrap_or_else(|_| Err(stopped())) }
    }

    /// Sends the parts, waits for all of them, and refunds those that fit if another one did not.
    async fn decide_parts(self: Arc<Self>, checks: Checks, deadline: Deadline) -> Result<StoreDecision, Error> {
        let checks = with_bans(&checks);
        let parts = self.parts(&checks);
        // Otherwise the units of the other parts would be taken for a moment, in vain.
        if let Some(error) = parts.iter().find_map(|part| self.servers.breaker_error(part.slot)) {
            return Err(error);
        }
        let tasks: Vec<JoinHandle<_>> =
            parts.into_iter().map(|part| tokio::spawn(part.decide(Arc::clone(&self), deadline))).collect();
        let (mut decisions, mut failure) = (Vec::with_capacity(tasks.len()), None);
        for task in tasks {
            match task.await.unwrap_or_else(|_| Err(stopped())) {
                Ok(decision) => decisions.push(decision),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let refused = failure.is_some() || decisions.iter().any(|(_, verdict)| verdict.refused);
        if refused {
            for decision in &mut decisions {
                self.refund_part(decision);
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(decided(self.id, &checks, &in_order(decisions), refused))
    }

    fn refund_part(&self, (part, verdict): &mut (SlotGroup, Verdict)) {
        if !verdict.refused {
            self.refund_all(&decided(self.id, &part.checks, &verdict.steps, false).receipt);
            verdict.look_again(&part.checks);
        }
    }

    pub(super) fn is_apart(&self, checks: &[Check]) -> bool {
        self.parts(checks).len() > 1
    }

    /// Groups checks by their slots, in the order in which the slots first occur.
    fn parts(&self, checks: &[Check]) -> Vec<SlotGroup> {
        let mut parts: Vec<SlotGroup> = Vec::new();
        for (place, check) in checks.iter().enumerate() {
            let slot = self.servers.slot_of(redis_key(&self.prefix, &check.counter));
            let index = parts.iter().position(|other| other.slot == slot);
            let index = index.unwrap_or_else(|| {
                parts.push(SlotGroup { slot, places: SmallVec::new(), checks: SmallVec::new() });
                parts.len() - 1
            });
            parts[index].places.push(place);
            parts[index].checks.push(check.clone());
        }
        parts
    }
}

impl SlotGroup {
    /// Has the part decided. If its reply comes after the timeout, what it took is refunded then.
    async fn decide(self, engine: Arc<Engine>, deadline: Deadline) -> Result<(Self, Verdict), Error> {
        let reply = engine.call(Request::new(&engine.prefix, &self.checks, || engine.time.now_ms()), deadline).await;
        let part = reply.map_err(|no_reply| engine.refund_late(&self.checks, no_reply))?.script()?;
        let now_us = part.now_us();
        let verdict = Verdict::of(&self.checks, part).inspect_err(|_| engine.time.learn(now_us))?;
        Ok((self, verdict))
    }
}

/// Returns what was decided of each check, in the order of the checks.
fn in_order(decisions: Vec<(SlotGroup, Verdict)>) -> Vec<Step> {
    let mut steps: Vec<_> =
        decisions.into_iter().flat_map(|(part, verdict)| part.places.into_iter().zip(verdict.steps)).collect();
    steps.sort_unstable_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step).collect()
}
