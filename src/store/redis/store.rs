//! The Redis store: one script call for the decisions that come together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::wire::{MOST_CHECKS, Request, applied_change};
use crate::core::decision::{Decision, Source};
use crate::core::{Error, kept};
use crate::store::deny::{Asked, Question};
use crate::store::evaluate::of_any;
use crate::store::{
    Answer, Applied, BreakerState, Change, Check, Counter, Deadline, Decided, Receipt, Settlement, Settling, Store,
};

/// Counters in Redis, shared by all processes that use it.
///
/// A script decides on the server's time, over all policies of the request; requests that come while
/// calls are in flight share the next one. Behind it is one server, a Cluster
/// (`RedisStoreBuilder::connect_cluster` says what differs there), or the primary that sentinels name. The store survives restarts of the server by itself: a
/// decision that fails meanwhile returns an error within its budget. Clones share the connection.
/// What was refused a moment ago is refused without a call, as a [`DenyCache`](crate::DenyCache)
/// does. Needs a tokio runtime.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate::Error> {
/// use tollgate::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    engine: Arc<Engine>,
}

impl RedisStore {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// The primaries of a Cluster, as `host:port` and in that order, and whether each is asked. Of one
    /// server there are none: [its layer](crate::RateLimitLayer::breaker_state) knows.
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.engine.servers.breakers()
    }

    /// How many requests were refused without asking Redis, as it had just refused their like.
    pub fn answered_from_deny_cache(&self) -> u64 {
        self.engine.refusals.as_ref().map_or(0, |refusals| refusals.answered())
    }

    /// Has Redis decide, and learns from it.
    fn ask(&self, checks: &[Check], deadline: Deadline, question: Option<Question>) -> Answer<Result<Decided, Error>> {
        let (engine, checks) = (Arc::clone(&self.engine), kept(checks));
        Answer::pending(async move {
            let decided = if engine.servers.keep_together(&checks) || !engine.is_apart(&checks) {
                match engine.ask(Request::new(&engine.prefix, &checks), deadline).await {
                    Ok(answered) => engine.decided(&checks, answered),
                    Err(unanswered) => Err(engine.give_back_late(&checks, unanswered)),
                }
            } else {
                Arc::clone(&engine).decide_apart(checks.clone(), deadline).await
            };
            if let (Ok(decided), Some(refusals), Some(question)) = (&decided, &engine.refusals, &question) {
                refusals.learn(question, &checks, &decided.decision);
            }
            decided
        })
    }
}

impl Store for RedisStore {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            let decision = Decision::new([], Source::Store);
            return Answer::Ready(Ok(Decided { decision, receipt: Receipt::new(self.engine.id, []) }));
        }
        if checks.len() > MOST_CHECKS {
            let text = format!("{} checks in one decision are too many: give at most {MOST_CHECKS}", checks.len());
            return Answer::Ready(Err(Error::invalid(text)));
        }
        match self.engine.refusals.as_ref().map(|refusals| refusals.ask(checks)) {
            Some(Asked::Refused(decided)) => Answer::Ready(Ok(decided)),
            Some(Asked::Open(question)) => self.ask(checks, deadline, Some(question)),
            None => self.ask(checks, deadline, None),
        }
    }

    /// No refusal answers it that is remembered.
    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() || checks.len() > MOST_CHECKS {
            return self.decide(checks, deadline);
        }
        self.ask(checks, deadline, self.engine.refusals.as_ref().map(|refusals| refusals.question(checks)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.engine.settle(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let taken = of_any(counter);
        let request = Request::adjustment(&self.engine.prefix, &[], &taken, change);
        let engine = Arc::clone(&self.engine);
        let forgetting = self.engine.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            applied_change(&taken, change, engine.change(request).await?)
        })
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        let request = Request::reset(&self.engine.prefix, counter);
        let engine = Arc::clone(&self.engine);
        let forgetting = self.engine.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            engine.change(request).await.map(drop)
        })
    }

    fn budget(&self) -> Option<Duration> {
        Some(self.engine.budget)
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.engine.refusals.as_ref().and_then(|refusals| refusals.recall(checks))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.engine.prefix)
            .field("budget", &self.engine.budget)
            .finish_non_exhaustive()
    }
}
