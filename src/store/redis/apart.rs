//! Decisions over several slots of a Cluster, with one concurrent request for each slot.
//!
//! A script cannot have keys of two slots. So checks are grouped by slot, each group is a request, and the results are
//! joined here. If a group is denied or fails, units taken by the others are refunded. For about a round trip these
//! units are missing, and other requests may be denied. A request is still allowed as a whole or not at all, and no
//! limit is ever exceeded.

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

struct SlotGroup {
    slot: u16,
    /// Ascending indexes of the checks in the request.
    places: SmallVec<[usize; 4]>,
    checks: SmallVec<[Check; 2]>,
}

impl Engine {
    /// Continues in its own task, even if dropped, because refunds are known only when all parts are decided.
    pub(super) fn decide_apart(
        self: Arc<Self>,
        checks: Checks,
        deadline: Deadline,
    ) -> impl Future<Output = Result<StoreDecision, Error>> {
        let deciding = tokio::spawn(self.decide_parts(checks, deadline));
        async { deciding.await.unwrap_or_else(|_| Err(stopped())) }
    }

    async fn decide_parts(self: Arc<Self>, checks: Checks, deadline: Deadline) -> Result<StoreDecision, Error> {
        let checks = with_bans(&checks);
        let parts = self.parts(&checks);
        // Otherwise units of the other parts would be taken for a moment, for nothing.
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
    /// Refunds the part's units if its reply is late.
    async fn decide(self, engine: Arc<Engine>, deadline: Deadline) -> Result<(Self, Verdict), Error> {
        let reply = engine.call(Request::new(&engine.prefix, &self.checks, || engine.time.now_ms()), deadline).await;
        let mut part = reply.map_err(|no_reply| engine.refund_late(&self.checks, no_reply))?.script()?;
        let now_us = part.now_us();
        let verdict = Verdict::evaluate(&self.checks, &mut part).inspect_err(|_| engine.time.learn(now_us))?;
        Ok((self, verdict))
    }
}

fn in_order(decisions: Vec<(SlotGroup, Verdict)>) -> Vec<Step> {
    let mut steps: Vec<_> =
        decisions.into_iter().flat_map(|(part, verdict)| part.places.into_iter().zip(verdict.steps)).collect();
    steps.sort_unstable_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step).collect()
}
