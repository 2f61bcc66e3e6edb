use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::task::unconstrained;

use tollgate::{Counters, Decision, Error, Key, Limiter};

use super::book::{Waits, Want};
use super::error::FlowError;
use super::pool::{self, Pool};

/// Throttles units that pass one after the other: the bytes of a body, the messages of a connection, the items of a
/// stream.
///
/// [`Flow::of`] returns the flow of a key. It takes units from the store in portions, before they pass, and takes the
/// next portion before the last one is used up, so most units pass without a call. All flows of one key in a process
/// share their portions, and clones are flows of the same key.
///
/// | method | if no units are leased | for |
/// | --- | --- | --- |
/// | [`try_acquire`](Self::try_acquire) | returns an error immediately | a handler that must not wait |
/// | [`check`](Self::check) | waits for a call to the store, and returns its denial | messages that are rejected, or
/// end the connection |
/// | [`acquire`](Self::acquire) | waits until the quota has replenished them | pacing |
///
/// # Accuracy
///
/// No unit passes before the store has allowed it. A portion is the number of units that the quota replenishes in 250
/// ms, at most a quarter of its capacity, and at least 1 unit. For a burst, portions grow to at most 1/32 of the
/// capacity, and to a quarter of the remaining units. So, for each key and process, up to one portion may be denied to
/// other processes although it has not passed.
///
/// Units are charged at most 2 s before they pass. Leased units are refunded after 1 s, unless a caller waits for more.
/// Units that are set aside for a waiter pass within another 1 s, or are refunded, at the latest when the waiter is
/// polled or dropped. So over any interval *d* all processes together pass at most the units that the quota allows in
/// *d* + 2 s. A larger [`acquire`](Self::acquire) is charged as the quota replenishes its units.
///
/// A denial is kept for as long as it lasts, but for at most 5 s. During that time, a refund, a reset or a lifted ban
/// may have no effect.
///
/// A portion that is in flight when its runtime ends, or is held by a process that dies, stays taken.
///
/// A task leases portions in the runtime of the first waiter, or of the next waiter if that runtime ends.
/// A handler that blocks its thread may delay flows of its key for as long.
///
/// # Failures
///
/// While the store is unavailable, [`OnFailure`](tollgate::OnFailure) decides about portions, and
/// [`decision`](Self::decision) has the source of the last decision. With
/// [`OnFailure::Deny`](tollgate::OnFailure::Deny) all three methods return an error once no units are leased any more.
/// They also do if the store panics, with any setting.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
/// use tollgate_bandwidth::Flow;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_second(100))]);
/// let flow = Flow::of(&limiter, &Key::new("user", "ada")).await?;
/// for _ in 0..10 {
///     assert!(flow.try_acquire(1).is_ok());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a flow that takes nothing limits nothing"]
pub struct Flow {
    pool: Arc<Pool>,
    taking: Option<Taking>,
}

type Taking = Pin<Box<dyn Future<Output = Result<u64, FlowError>> + Send + Sync>>;

impl Flow {
    /// Returns the flow of a key under the rules of a limiter.
    ///
    /// Each unit is taken from every rule, in portions. A first portion is leased before this returns, unless the store
    /// denies it. The cost of the rules does not matter.
    ///
    /// The limiter of a [layer](tollgate::LiveLayer::limiter) takes each unit from all policies that it uses for the
    /// key, which count requests. Give messages a separate limiter, or [name](Limiter::only) a policy.
    ///
    /// A denied portion is no strike of a [ban](tollgate::Rule::ban). While the key is banned, no more units are
    /// leased, and [`decision`](Self::decision) shows the ban. Units leased before still pass.
    ///
    /// If rules are replaced, flows follow from their next portion on. A flow keeps the quota of its tier.
    ///
    /// # Errors
    ///
    /// Like [`Limiter::counters`], and if the store fails while [`OnFailure::Deny`](tollgate::OnFailure::Deny) is set.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, no units stay taken. A portion whose decision is in flight is refunded when the
    /// decision arrives.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    /// use tollgate_bandwidth::Flow;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_second(50))]);
    /// let flow = Flow::of(&limiter, &Key::new("user", "ada")).await?;
    /// flow.check(1).await?;
    /// assert!(Flow::of(&limiter, &Key::new("user", "bob")).await?.try_acquire(51).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn of(limiter: &Limiter, key: &Key) -> Result<Self, Error> {
        let flow = Self::new(limiter.counters(key).await?);
        // A first portion, unless something is leased.
        let first = Want { least: 1, most: 0, waits: Waits::ForCall };
        match flow.pool.acquire(first).await {
            Err(error) if error.is_unavailable() => Err(error.into_error()),
            _ => Ok(flow),
        }
    }

    pub(crate) fn new(counters: Counters) -> Self {
        Self { pool: pool::shared_pool(counters), taking: None }
    }

    /// Takes units that are leased already, without waiting.
    ///
    /// # Errors
    ///
    /// If too few units are leased, or others wait for them. With [`FlowError::is_pending`] they are not denied: a call
    /// for a portion is in flight.
    pub fn try_acquire(&self, units: u64) -> Result<(), FlowError> {
        let want = Want { least: units, most: units, waits: Waits::ForCall };
        // Tokio's cooperative scheduling would return pending although there are units.
        let taking = pin!(unconstrained(self.pool.acquire(want)));
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => taken.map(drop),
            Poll::Pending => Err(self.pool.state().book.refusal(units)),
        }
    }

    /// Takes units, and waits for a call to the store if too few are leased.
    ///
    /// # Errors
    ///
    /// If the store denies them, or no decision could be made.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, no units are taken.
    pub async fn check(&self, units: u64) -> Result<(), FlowError> {
        self.pool.acquire(Want { least: units, most: units, waits: Waits::ForCall }).await.map(drop)
    }

    /// Takes units, and waits until the quota has replenished them, in the order of arrival. Needs a tokio runtime with
    /// timers.
    ///
    /// # Errors
    ///
    /// If no decision could be made.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, no units are taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    /// use tollgate_bandwidth::Flow;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_second(1_000_000))]);
    /// let flow = Flow::of(&limiter, &Key::new("user", "ada")).await?;
    /// for chunk in [[0_u8; 4_096]; 3] {
    ///     flow.acquire(chunk.len() as u64).await?;
    ///     // Send the chunk.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, units: u64) -> Result<(), FlowError> {
        self.pool.acquire(Want { least: units, most: units, waits: Waits::ForQuota }).await.map(drop)
    }

    /// Polls for units, as [`acquire`](Self::acquire): for streams, sinks and bodies of your own.
    ///
    /// Between two results, `units` must be the same. The flow keeps its place in the line, until it is dropped.
    ///
    /// # Errors
    ///
    /// Like [`acquire`](Self::acquire).
    pub fn poll_acquire(&mut self, cx: &mut Context<'_>, units: u64) -> Poll<Result<(), FlowError>> {
        let want = Want { least: units, most: units, waits: Waits::ForQuota };
        self.poll(cx, want).map_ok(drop)
    }

    fn poll(&mut self, cx: &mut Context<'_>, want: Want) -> Poll<Result<u64, FlowError>> {
        if self.taking.is_none()
            && let Some(taken) = self.pool.take(want)
        {
            return Poll::Ready(taken);
        }
        let pool = &self.pool;
        let taking = self.taking.get_or_insert_with(|| {
            let pool = Arc::clone(pool);
            Box::pin(async move { pool.acquire(want).await })
        });
        let taken = ready!(taking.as_mut().poll(cx));
        self.taking = None;
        Poll::Ready(taken)
    }

    pub(crate) fn count_cut(&self, error: &FlowError) {
        if let Some((policy, _)) = error.by() {
            self.pool.metrics.cut(policy);
        }
    }

    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, most: u64, waits: Waits) -> Poll<Result<u64, FlowError>> {
        let least = if waits == Waits::ForCall { most.min(self.pool.state().book.portion.chunk) } else { 1 };
        self.poll(cx, Want { least, most, waits })
    }

    /// Returns the decision about the last portion, with its source and the units left in the store. `None` if there
    /// was no portion, or the last decision could not be made.
    pub fn decision(&self) -> Option<Decision> {
        self.pool.state().book.last().map(|last| last.decision.clone())
    }
}

impl Clone for Flow {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool), taking: None }
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").finish_non_exhaustive()
    }
}
