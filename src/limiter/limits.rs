//! A store, what is done when it fails, and decisions by it: what all who decide by the same limits share.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep_until};

use super::peek;
use super::plan::{Finding, Found, Places, Plan};
use super::rule::Rule;
use crate::core::Requirement;
use crate::metrics::{Decisions, Timer};
use crate::store::{Check, Deadline, Decided, FailureRules, FailureStore, SharedStore};
use crate::{Error, Store};

/// The rules in force, the store that decides by them, and what is done when it cannot.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(super) rules: Vec<Rule>,
    pub(crate) failure: FailureRules,
    pub(crate) decisions: Decisions,
    given: SharedStore,
    pub(crate) store: Arc<FailureStore<SharedStore>>,
}

/// What is published in one swap: limits, and beside them what a limiter does not know.
pub(crate) trait Published: Send + Sync + 'static {
    fn limits(&self) -> &Limits;
}

/// Where limits are read that may be replaced while they are used.
pub(crate) trait InForce: Send + Sync {
    /// Those of this moment, which stay as they are for whoever has them.
    fn now(&self) -> Arc<dyn Published>;
}

impl Published for Limits {
    fn limits(&self) -> &Limits {
        self
    }
}

impl<P: Published> InForce for ArcSwap<P> {
    fn now(&self) -> Arc<dyn Published> {
        self.load_full()
    }
}

/// The rules that a decision was made by, when the store was asked, and what it said.
pub(crate) type DecidedBy = (Places, Timer, Result<Decided, Error>);

impl Limits {
    /// Limits without a rule yet.
    pub(crate) fn new(store: SharedStore) -> Self {
        let failure = FailureRules::default();
        let wrapped = Arc::new(FailureStore::new(Arc::clone(&store), failure));
        Self { rules: Vec::new(), failure, decisions: Decisions::default(), given: store, store: wrapped }
    }

    /// Sets rules that the store [supports](Self::supports).
    pub(crate) fn set_rules(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.rules = rules.into_iter().collect();
    }

    /// Changes what is done when the store fails, and forgets how often it has.
    pub(crate) fn change_failure(&mut self, change: impl FnOnce(&mut FailureRules)) {
        change(&mut self.failure);
        self.store = Arc::new(FailureStore::new(Arc::clone(&self.given), self.failure));
    }

    /// Whether the store can decide by all of these rules.
    pub(crate) fn supports<'a>(&self, rules: impl Iterator<Item = &'a Rule>) -> Result<(), Error> {
        let requirements: SmallVec<[Requirement<'_>; 4]> = rules.map(Rule::requirement).collect();
        self.given.supports(&requirements)
    }

    /// By when a decision that begins now has to be made, with all that is looked up for it.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.store.time_for_all())
    }

    /// Decides what has to look something up before, all of it within the budget.
    ///
    /// Nothing is looked up for a request that is refused by what is known. Of the time that is left
    /// after that, look-ups have half, and the store what they leave.
    pub(crate) async fn decide_later<F: Finding>(&self, mut plan: Plan<F>) -> Result<DecidedBy, F::Refusal> {
        let deadline = self.deadline();
        if let Some((timer, refused)) = peek::refusal(&self.store, &plan.checks, deadline).await {
            return Ok((plan.rules, timer, refused));
        }
        self.find_out(&mut plan, deadline).await?;
        let timer = Timer::start();
        let decided = self.store.decide(&plan.checks, deadline).wait().await;
        Ok((plan.rules, timer, decided))
    }

    /// Looks up what has to be, in half of the time that is left.
    pub(crate) async fn find_out<F: Finding>(&self, plan: &mut Plan<F>, deadline: Deadline) -> Result<(), F::Refusal> {
        let half = deadline.remaining().and_then(|left| Instant::now().checked_add(left / 2));
        let found = look_up(mem::take(&mut plan.findings), half).await?;
        plan.insert(found);
        Ok(())
    }
}

/// A rule whose check is looked up, and what was found out about it so far.
type One<F> = (F, Option<Found<<F as Finding>::Refusal>>);

/// The checks that are looked up, by the places of their rules; what is not known `until` then is done without. Or
/// the refusal of the first rule that refuses.
///
/// There are no timers outside of a runtime.
async fn look_up<F: Finding>(findings: Vec<F>, until: Option<Instant>) -> Result<Vec<(usize, Check)>, F::Refusal> {
    let until = until.filter(|_| Runtime::try_current().is_ok());
    let mut timer = until.map(|until| Box::pin(sleep_until(until)));
    let mut each: Vec<One<F>> = findings.into_iter().map(|finding| (finding, None)).collect();
    poll_fn(|cx| {
        if poll_each(&mut each, cx) {
            return Poll::Ready(());
        }
        timer.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx))
    })
    .await;
    // Where one refuses, the others are not missed.
    let refusal = each.iter().position(|(_, known)| matches!(known, Some(Found::Refused(_))));
    let missed = refusal.map_or(0..each.len(), |refusal| refusal..refusal + 1);
    let mut checks = Vec::with_capacity(missed.len());
    for (finding, known) in each.drain(missed) {
        match known.unwrap_or_else(|| finding.late()) {
            Found::Check(check) => checks.push((finding.rule(), check)),
            Found::Refused(refusal) => return Err(refusal),
            Found::Skip => {}
        }
    }
    Ok(checks)
}

/// Whether nothing has to be waited for any more.
fn poll_each<F: Finding>(each: &mut [One<F>], cx: &mut Context<'_>) -> bool {
    for (finding, known) in each.iter_mut().filter(|(_, known)| known.is_none()) {
        if let Poll::Ready(found) = finding.poll(cx) {
            *known = Some(found);
        }
    }
    let refuses = each.iter().any(|(_, known)| matches!(known, Some(Found::Refused(_))));
    refuses || each.iter().all(|(_, known)| known.is_some())
}
