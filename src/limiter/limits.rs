//! What all users of the same limits share: rules, a store, and what happens when it fails.
//!
//! Layers, services and limiters hold the limits behind an `ArcSwap`, so that rules can be replaced while requests are
//! in flight. A decision that needs no lookup goes straight to the store; the others come here
//! ([`Limits::decide`]): a look at the checks that need no lookup, the lookups, and the decision.

use std::ptr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::plan::{PendingCheck, Plan};
use super::rule::{Rule, RuleKeys};
use super::warned::Warned;
use crate::core::{Error, Requirement};
use crate::store::{Ask, FailureRules, FailureStore, Settles, SharedStore, Store, StoreDecision};
use crate::telemetry::{Telemetry, Timer};

/// The rules in force, the store that decides by them, and what happens when it fails.
#[derive(Clone)]
pub(crate) struct Limits {
    /// In the order in which decisions list them.
    pub(super) rules: Vec<Rule>,
    /// Which keys each rule counts, if they are those of policies; none if the rules take any key.
    pub(super) keys: Vec<RuleKeys>,
    /// The settings for failures; `store` was built with them.
    pub(crate) failure: FailureRules,
    /// What decisions are reported to.
    pub(crate) telemetry: Arc<Telemetry>,
    /// The store that the caller passed in.
    inner: SharedStore,
    /// The same store behind a circuit breaker, a timeout and the rule for failures.
    pub(crate) store: Arc<FailureStore>,
    /// What was warned of, also of limits that these replaced.
    pub(crate) warned: Arc<Warned>,
    /// Where the limits in force are that replace these.
    pub(super) source: Weak<dyn InForce>,
}

/// A source of limits that may be replaced while they are used.
pub(crate) trait InForce: Send + Sync {
    /// Returns a snapshot of the limits in force, which does not change when they are replaced.
    fn now(&self) -> Arc<Limits>;
}

impl InForce for ArcSwap<Limits> {
    fn now(&self) -> Arc<Limits> {
        self.load_full()
    }
}

/// The plan of a decision, the timer of the call, and the result of the store.
pub(crate) type DecidedBy<F> = (Plan<F>, Timer, Result<StoreDecision, Error>);

impl Limits {
    pub(crate) fn new(inner: SharedStore) -> Self {
        let failure = FailureRules::default();
        let store = Arc::new(FailureStore::new(Arc::clone(&inner), failure));
        let source = Weak::<ArcSwap<Self>>::new();
        Self {
            rules: Vec::new(),
            keys: Vec::new(),
            failure,
            telemetry: Arc::default(),
            inner,
            store,
            warned: Arc::default(),
            source,
        }
    }

    pub(crate) fn set_source(&mut self, source: Weak<dyn InForce>) {
        self.source = source;
    }

    /// Warns anew, for another layer with the same limits.
    pub(crate) fn renew_warnings(&mut self) {
        self.warned = Arc::new(self.warned.renewed());
    }

    /// Returns whether these limits are in force in `layer`, or were before.
    pub(crate) fn are_of<T>(&self, layer: &Arc<ArcSwap<T>>) -> bool {
        ptr::addr_eq(self.source.as_ptr(), Arc::as_ptr(layer))
    }

    /// Sets the rules; the store must [support](Self::supports) them.
    pub(crate) fn set_rules(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.rules = rules.into_iter().map(Rule::interned).collect();
    }

    pub(crate) fn set_policies(&mut self, policies: impl IntoIterator<Item = (Rule, RuleKeys)>) {
        (self.rules, self.keys) = policies.into_iter().unzip();
    }

    pub(crate) fn change_failure(&mut self, change: impl FnOnce(&mut FailureRules)) {
        change(&mut self.failure);
        self.store = Arc::new(FailureStore::new(Arc::clone(&self.inner), self.failure));
    }

    /// Returns an error if two of these rules have one name, or the store cannot decide by all of them.
    pub(crate) fn supports<'a>(&self, rules: impl Iterator<Item = &'a Rule>) -> Result<(), Error> {
        let rules: SmallVec<[&Rule; 4]> = rules.collect();
        let is_taken =
            |(place, rule): &(usize, &&Rule)| rules[..*place].iter().any(|other| other.name() == rule.name());
        if let Some((_, rule)) = rules.iter().enumerate().find(is_taken) {
            return Err(Error::invalid(format!(
                "the name {:?} is given to two policies that are decided together: counters, \
                 headers and metrics could not tell them apart: give each its own",
                rule.name().as_str()
            )));
        }
        let requirements: SmallVec<[Requirement<'_>; 4]> = rules.into_iter().map(Rule::requirement).collect();
        self.inner.capabilities(&requirements).map(drop)
    }

    /// Returns an error if a rule can never admit a check at its cost.
    pub(super) fn check_costs(rules: &[Rule]) -> Result<(), Error> {
        let Some((rule, (cost, capacity))) = rules.iter().find_map(|rule| Some((rule, rule.excess()?))) else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "rule {:?}: a check costs {cost} and the quota holds {capacity} at most, so all would be refused: lower the \
             cost, or raise the limit or burst",
            rule.name().as_str()
        )))
    }

    /// Returns an error if the store cannot refund units of each of these rules.
    pub(super) fn supports_refunds(&self, places: &[usize]) -> Result<(), Error> {
        let of = |place: &usize| Requirement { settles: Settles::ByOutcome, ..self.rules[*place].requirement() };
        let requirements: SmallVec<[Requirement<'_>; 4]> = places.iter().map(of).collect();
        self.inner.capabilities(&requirements).map(drop)
    }

    /// Decides a plan, after the lookups that it needs.
    ///
    /// A request that is refused by a check without a lookup causes no lookups. Lookups have timeouts of their own, and the
    /// time that they take is none of the decision's.
    ///
    /// # Errors
    ///
    /// The refusal of the first rule that refuses by its lookup.
    pub(crate) async fn decide<F: PendingCheck>(&self, mut plan: Plan<F>) -> Result<DecidedBy<F>, F::Error> {
        if !plan.pending.is_empty() {
            if let Some((timer, refused)) = self.refusal(&plan.checks).await {
                return Ok((plan, timer, refused));
            }
            plan.look_up().await?;
        }
        let timer = self.telemetry.start();
        let decided = self.store.decide(&plan.checks, Ask::default()).wait().await;
        Ok((plan, timer, decided))
    }
}
