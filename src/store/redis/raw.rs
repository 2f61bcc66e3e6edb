//! The trait [`Store`] on top of the engine, without a cache.
//!
//! Checks come in; a decision goes out, from one script call, or, on a Cluster, from one call for each slot
//! (`apart.rs`).

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::engine::{Call, Engine};
use super::wire::{MOST_CHECKS, Request, applied_change};
use crate::core::decision::{Decision, Source};
use crate::core::{Checks, Error, kept};
use crate::store::bans::{changed, size, with_bans};
use crate::store::deny::Called;
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

    /// Decides by a call, of which nothing is sent before the first poll. Without checks there is none, and too many are
    /// refused.
    pub(super) fn call(&self, checks: &[Check], deadline: Deadline) -> Called<PendingDecision> {
        let (engine, size) = (&self.engine, size(checks));
        if checks.is_empty() {
            let receipt = Receipt::empty(engine.id);
            return Called::Ready(Ok(Decided { decision: Decision::new([], Source::Store), receipt }));
        }
        if size > MOST_CHECKS {
            let text = format!("{size} checks and bans in one decision are too many: give at most {MOST_CHECKS}");
            return Called::Ready(Err(Error::invalid(text)));
        }
        let checks = kept(checks);
        let way = if !engine.servers.keep_together(&checks) && engine.is_apart(&checks) {
            let (engine, checks) = (Arc::clone(engine), checks.clone());
            Way::Apart(Box::pin(async move { engine.decide_apart(checks, deadline).await }))
        } else {
            let request = Request::new(&engine.prefix, &with_bans(&checks), || engine.time.now_ms());
            Way::Together(engine.call(request, deadline))
        };
        Called::Pending(PendingDecision { checks, way })
    }
}

/// The wait for a decision, which is returned with its checks.
pub(super) struct PendingDecision {
    checks: Checks,
    way: Way,
}

enum Way {
    /// All keys are in one slot.
    Together(Call),
    Apart(Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>),
}

impl Future for PendingDecision {
    type Output = (Checks, Result<Decided, Error>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { checks, way } = &mut *self;
        let decided = match way {
            Way::Together(call) => match ready!(Pin::new(&mut *call).poll(cx)) {
                Ok(part) => call.engine.decided(checks, part),
                Err(no_reply) => Err(call.engine.refund_late(checks, no_reply)),
            },
            Way::Apart(deciding) => ready!(deciding.as_mut().poll(cx)),
        };
        Poll::Ready((mem::take(checks), decided))
    }
}

impl Store for RawRedisStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        match self.call(checks, ask.deadline) {
            Called::Ready(decided) => Answer::Ready(decided),
            Called::Pending(call) => Answer::pending(async move { call.await.1 }),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.engine.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let taken = of_any(counter);
        let (taken, change) = changed(&taken, change);
        let request = Request::adjustment(&self.engine.prefix, &[], &taken, change, || self.engine.time.now_ms());
        let (call, taken) = (self.engine.call(request, Deadline::none()), taken.into_owned());
        Answer::pending(async move {
            // There is nothing to refund if the reply is late.
            let part = call.await.map_err(|no_reply| no_reply.error)?;
            applied_change(&taken, change, part)
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let capabilities = Capabilities::with_few_bans(requirements, MOST_CHECKS)?;
        Ok(capabilities.budget(self.engine.budget).id(self.engine.id))
    }
}
