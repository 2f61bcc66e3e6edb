//! The Redis store: one script call for the decisions that come together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::batch::Unanswered;
use super::builder::RedisStoreBuilder;
use super::engine::Inner;
use super::wire::{Answered, MOST_CHECKS, Request, Verdict, verdict};
use crate::Error;
use crate::core::decision::{Decision, Source};
use crate::core::kept;
use crate::store::deny::{Asked, Question, Refusals};
use crate::store::evaluate::{of_any, told, told_of_one};
use crate::store::{
    Answer, Applied, BreakerState, Change, Check, Counter, Deadline, Decided, DenyCacheBuilder, Receipt, Settlement,
    Settling, Store,
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
    pub(super) inner: Arc<Inner>,
    pub(super) refusals: Option<Arc<Refusals>>,
}

impl RedisStore {
    /// Connects with the default settings. See [`RedisStoreBuilder::connect`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or the server cannot be reached, refuses the connection, or is no
    /// Redis.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Connects to a Cluster with the default settings. See [`RedisStoreBuilder::connect_cluster`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, or no node can be reached, is one of a Cluster, and accepts the scripts.
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::builder().connect_cluster(urls).await
    }

    /// Connects to the primary that sentinels know by a name, with the default settings. See
    /// [`RedisStoreBuilder::connect_sentinel`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, no sentinel answers or knows the name, or the primary cannot be reached, or
    /// refuses the connection.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master_name: &str,
    ) -> Result<Self, Error> {
        Self::builder().connect_sentinel(urls, master_name).await
    }

    /// Uses a pool that is there already, with the default settings.
    ///
    /// # Panics
    ///
    /// Never: the default settings are valid.
    pub fn from_pool(pool: Pool) -> Self {
        Self::builder().from_pool(pool).expect("the default settings are valid")
    }

    /// Settings to connect with.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    pub(super) fn new(inner: Inner, deny_cache: Option<DenyCacheBuilder>) -> Result<Self, Error> {
        let inner = Arc::new(inner);
        let refusals = deny_cache.map(|cache| cache.refusals(inner.id)).transpose()?.map(Arc::new);
        Ok(Self { inner, refusals })
    }

    /// The primaries of a Cluster, as `host:port` and in that order, and whether each is asked. Of one
    /// server there are none: [its layer](crate::RateLimitLayer::breaker_state) knows.
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.inner.servers.breakers()
    }

    /// How many requests were refused without asking Redis, as it had just refused their like.
    pub fn answered_from_deny_cache(&self) -> u64 {
        self.refusals.as_ref().map_or(0, |refusals| refusals.answered())
    }
}

impl RedisStore {
    /// Has Redis decide, and learns from it.
    fn ask(&self, checks: &[Check], deadline: Deadline, question: Option<Question>) -> Answer<Result<Decided, Error>> {
        let (store, checks) = (self.clone(), kept(checks));
        Answer::pending(async move {
            let decided = if store.inner.is_apart(&checks) {
                store.clone().decide_apart(checks.clone(), deadline).await
            } else {
                match store.inner.ask(Request::new(&store.inner.prefix, &checks), deadline).await {
                    Ok(answered) => store.inner.decided(&checks, answered),
                    Err(unanswered) => Err(store.give_back_late(&checks, unanswered)),
                }
            };
            if let (Ok(decided), Some(refusals), Some(question)) = (&decided, &store.refusals, &question) {
                refusals.learn(question, &checks, &decided.decision);
            }
            decided
        })
    }

    /// Has what was taken given back if an answer comes that nobody waited for. Returns the error.
    pub(super) fn give_back_late(&self, checks: &[Check], unanswered: Unanswered) -> Error {
        let Unanswered { error, late } = unanswered;
        // That of the caller may end, or be driven no more, before the answer comes.
        let runtime = || self.inner.runtime_of(checks).or_else(|| Runtime::try_current().ok());
        if let Some((late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (store, checks) = (self.clone(), kept(checks));
            // It ends with the connection at the latest, which is not polled for long.
            runtime.spawn(async move {
                let Some(answered) = late.answer().await else { return };
                let Ok(Decided { receipt, .. }) = store.inner.decided(&checks, answered) else { return };
                let all = |check| Settlement { check, change: Change::Refund(u64::MAX) };
                let changes: SmallVec<[Settlement; 4]> = (0..receipt.taken().len()).map(all).collect();
                drop(store.settle(receipt, &changes));
            });
        }
        error
    }
}

impl Store for RedisStore {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            let decision = Decision::new([], Source::Store);
            return Answer::Ready(Ok(Decided { decision, receipt: Receipt::new(self.inner.id, []) }));
        }
        if checks.len() > MOST_CHECKS {
            let text = format!("{} checks in one decision are too many: give at most {MOST_CHECKS}", checks.len());
            return Answer::Ready(Err(Error::invalid(text)));
        }
        match self.refusals.as_ref().map(|refusals| refusals.ask(checks)) {
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
        self.ask(checks, deadline, self.refusals.as_ref().map(|refusals| refusals.question(checks)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.inner.id || changes.is_empty() {
            return Answer::Ready(Ok(Vec::new()));
        }
        self.send_all(&receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let taken = of_any(counter);
        let request = Request::adjustment(&self.inner.prefix, &[], &taken, change);
        let inner = Arc::clone(&self.inner);
        let forgetting = self.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            verdict::changed(&taken, change, inner.change(request).await?)
        })
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        let request = Request::reset(&self.inner.prefix, counter);
        let inner = Arc::clone(&self.inner);
        let forgetting = self.refusals.as_ref().map(|refusals| refusals.forgetting(counter));
        Answer::pending(async move {
            let _forgetting = forgetting;
            inner.change(request).await.map(drop)
        })
    }

    fn budget(&self) -> Option<Duration> {
        Some(self.inner.budget)
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.refusals.as_ref().and_then(|refusals| refusals.recall(checks))
    }
}

impl Inner {
    /// Works out what the script found.
    fn decided(&self, checks: &[Check], answered: Answered) -> Result<Decided, Error> {
        let call = answered.call;
        let decided = if let [check] = checks {
            told_of_one(self.id, check, &verdict::of_one(check, answered)?)
        } else {
            let mut verdict = Verdict::of(checks, answered)?;
            if verdict.refused {
                verdict.look_again(checks);
            }
            told(self.id, checks, &verdict.steps, verdict.refused)
        };
        let Decided { decision, receipt } = decided;
        Ok(Decided { decision, receipt: receipt.of_call(call) })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.inner.prefix)
            .field("budget", &self.inner.budget)
            .finish_non_exhaustive()
    }
}
