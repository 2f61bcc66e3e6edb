//! A store whose decisions a closure makes.

use std::fmt;
use std::time::Duration;

use crate::core::{Decision, Error, Outcome, Source};
use crate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Decided, Mode, Receipt, Requirement, Settlement,
    Settling, Store, StoreId, Taken,
};

/// A store that decides each check by a closure, and keeps nothing: for tests of what follows a decision.
///
/// The closure returns whether the check fits. A check that fits has its quota's capacity left but for its cost, and
/// one that does not can be repeated after a window, unless [`retry_after`](Self::retry_after) is set. A look (a check
/// of cost 0) always fits, with nothing left if the closure returns `false`. All that is charged or refunded is
/// reported as done.
///
/// # Examples
///
/// ```
/// use tollgate::test_util::StoreFn;
/// use tollgate::{Key, Limiter, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let store = StoreFn::new(|check| check.cost <= 10);
/// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_hour(100))]);
///
/// let ada = Key::new("user", "ada");
/// assert!(limiter.check_n(&ada, 10).await?.is_allowed());
/// assert!(!limiter.check_n(&ada, 11).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreFn<F> {
    id: StoreId,
    fits: F,
    source: Source,
    retry_after: Option<Duration>,
}

impl<F> StoreFn<F>
where
    F: Fn(&Check) -> bool + Send + Sync + 'static,
{
    /// A store of a closure that returns whether a check fits. It must not block.
    pub fn new(fits: F) -> Self {
        Self { id: StoreId::new(), fits, source: Source::Store, retry_after: None }
    }

    /// Sets the source of all decisions, which is [`Source::Store`] otherwise: for tests of what depends on it, such as
    /// logs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::test_util::StoreFn;
    /// use tollgate::{Key, Limiter, Quota, Rule, Source};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let store = StoreFn::new(|_| false).source(Source::DenyCache);
    /// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_hour(100))]);
    /// assert_eq!(limiter.check(&Key::new("user", "ada")).await?.source(), Source::DenyCache);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    /// Sets how long all refusals say to wait, which is the window of the quota otherwise: for tests of what waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::Request;
    /// use tollgate::test_util::{StoreFn, send};
    /// use tollgate::{Policy, Quota, RateLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = StoreFn::new(|_| false).retry_after(Duration::from_secs(3));
    /// let layer = RateLimitLayer::new(store, Policy::new("api", Quota::per_hour(100)));
    /// let sent = send(&layer, 1, |_| Request::new(())).await;
    /// assert_eq!(sent[0].headers()["retry-after"], "3");
    /// # }
    /// ```
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    fn outcome(&self, check: &Check) -> Outcome {
        let capacity = check.counter.quota().capacity();
        match ((self.fits)(check), check.cost) {
            (true, cost) => Outcome::allowed(check, capacity.saturating_sub(cost)),
            (false, 0) => Outcome::allowed(check, 0),
            (false, _) => {
                let wait = self.retry_after.unwrap_or(check.counter.quota().window());
                Outcome::denied(check, 0, Some(wait))
            }
        }
    }
}

impl<F> Store for StoreFn<F>
where
    F: Fn(&Check) -> bool + Send + Sync + 'static,
{
    fn decide(&self, checks: &[Check], _: Ask) -> Answer<Result<Decided, Error>> {
        let outcomes: Vec<_> = checks.iter().map(|check| self.outcome(check)).collect();
        let taken = checks.iter().zip(&outcomes).map(|(check, outcome)| {
            let units = if outcome.is_allowed() { check.cost } else { 0 };
            Taken::new(check.counter.clone(), units, 0).floor(check.floor)
        });
        let is_refused =
            checks.iter().zip(&outcomes).any(|(check, one)| check.mode == Mode::Enforce && !one.is_allowed());
        let receipt = if is_refused { Receipt::empty(self.id) } else { Receipt::new(self.id, taken) };
        Answer::Ready(Ok(Decided::new(Decision::new(outcomes, self.source), receipt)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.id {
            return Answer::Ready(Ok(Vec::new()));
        }
        let applied = Settlement::each(changes, &receipt, |_, _, change| applied(change));
        Answer::Ready(Ok(applied))
    }

    fn adjust(&self, _: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        Answer::Ready(Ok(applied(change)))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::without_bans(requirements)?.id(self.id))
    }
}

/// Returns the result of a change that was made as a whole.
fn applied(change: Change) -> Applied {
    match change {
        Change::Refund(units) | Change::Charge(units) | Change::Renew(units) => Applied::new(units, 0),
        Change::Strike(_) | Change::Lift | Change::Reset => Applied::new(0, 0),
    }
}

impl<F> fmt::Debug for StoreFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFn").field("id", &self.id).finish_non_exhaustive()
    }
}
