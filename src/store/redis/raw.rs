//! The trait [`Store`] on top of the engine, without a cache.
//!
//! Checks come in; a decision goes out, from one script call, or, on a Cluster, from one call for each slot
//! (`apart.rs`).

use std::sync::Arc;

use super::engine::Engine;
use super::wire::{MOST_CHECKS, Request, applied_change};
use crate::core::decision::{Decision, Source};
use crate::core::{Checks, Error, kept};
use crate::store::evaluate::of_any;
use crate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Deadline, Decided, Receipt, Requirement, Settlement,
    Settling, Store,
};

/// A store that calls Redis for each decision.
#[derive(Clone)]
pub(super) struct RawRedisStore {
    /// What all clones share.
    engine: Arc<Engine>,
}

impl RawRedisStore {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Decides without checks, and refuses to decide too many.
    pub(super) fn decided_without_a_call(&self, checks: &[Check]) -> Option<Result<Decided, Error>> {
        if checks.is_empty() {
            let decision = Decision::new([], Source::Store);
            return Some(Ok(Decided { decision, receipt: Receipt::new(self.engine.id, []) }));
        }
        let size = Request::size_of(checks);
        (size > MOST_CHECKS).then(|| {
            let text = format!("{size} checks and bans in one decision are too many: give at most {MOST_CHECKS}");
            Err(Error::invalid(text))
        })
    }

    /// Decides by a call, and returns the checks with the decision.
    pub(super) fn call(
        &self,
        checks: Checks,
        deadline: Deadline,
    ) -> impl Future<Output = (Checks, Result<Decided, Error>)> + Send + use<> {
        let engine = Arc::clone(&self.engine);
        async move {
            if !engine.servers.keep_together(&checks) && engine.is_apart(&checks) {
                let decided = engine.decide_apart(checks.clone(), deadline).await;
                return (checks, decided);
            }
            let request = Request::new(&engine.prefix, &checks, || engine.time.now_ms());
            let decided = match engine.call(request, deadline).await {
                Ok(part) => engine.decided(&checks, part),
                Err(no_reply) => Err(engine.refund_late(&checks, no_reply)),
            };
            (checks, decided)
        }
    }
}

impl Store for RawRedisStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        if let Some(decided) = self.decided_without_a_call(checks) {
            return Answer::Ready(decided);
        }
        let call = self.call(kept(checks), ask.deadline);
        Answer::pending(async move { call.await.1 })
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.engine.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let taken = of_any(counter);
        let request = Request::adjustment(&self.engine.prefix, &[], &taken, change, || self.engine.time.now_ms());
        let engine = Arc::clone(&self.engine);
        Answer::pending(async move {
            // There is nothing to refund if the reply is late.
            let part = engine.call(request, Deadline::none()).await.map_err(|no_reply| no_reply.error)?;
            applied_change(&taken, change, part)
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let capabilities = Capabilities::with_few_bans(requirements, MOST_CHECKS)?;
        Ok(capabilities.budget(self.engine.budget).id(self.engine.id))
    }
}
