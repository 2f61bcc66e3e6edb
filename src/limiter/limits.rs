//! State that all users of the same limits share: rules, a store, and what happens when it fails.
//!
//! Layers, services and limiters hold the limits behind an `ArcSwap`, so that rules can be replaced while requests are
//! in flight. A decision that needs no lookup goes straight to the store. [`Limits::decide`] is for decisions that need
//! one: it peeks at the checks that need no lookup, runs the lookups, and then decides.

use std::ptr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::overrides::table::OverrideTable;
use super::plan::{PendingCheck, Plan};
use super::rule::{Rule, RuleKeys};
use super::warned::Warned;
use crate::core::{Error, Requirement};
use crate::store::{Ask, FailureRules, FailureStore, Settles, SharedStore, Store, StoreDecision};
use crate::telemetry::{Telemetry, Timer};

#[derive(Clone)]
pub(crate) struct Limits {
    pub(super) rules: Vec<Rule>,
    /// Keys that each rule counts, if the rules are policies. Empty if they take any key.
    pub(super) keys: Vec<RuleKeys>,
    pub(crate) failure: FailureRules,
    pub(crate) telemetry: Arc<Telemetry>,
    inner: SharedStore,
    /// `inner` behind a circuit breaker, a timeout and the rule for failures.
    pub(crate) store: Arc<FailureStore>,
    /// Also covers limits that these limits replaced.
    pub(crate) warned: Arc<Warned>,
    /// Also covers limits that these limits replaced.
    pub(super) overrides: Arc<OverrideTable>,
    pub(super) source: Weak<dyn InForce>,
}

pub(crate) trait InForce: Send + Sync {
    fn now(&self) -> Arc<Limits>;
}

impl InForce for ArcSwap<Limits> {
    fn now(&self) -> Arc<Limits> {
        self.load_full()
    }
}

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
            overrides: Arc::default(),
            source,
        }
    }

    pub(crate) fn set_source(&mut self, source: Weak<dyn InForce>) {
        self.source = source;
    }

    /// Warns again, for another layer with the same limits.
    pub(crate) fn renew_warnings(&mut self) {
        self.warned = Arc::new(self.warned.renewed());
    }

    /// Begins without overrides, for another layer with the same limits.
    pub(crate) fn renew_overrides(&mut self) {
        self.overrides = Arc::default();
    }

    /// Returns `true` if these limits are in force in `layer`, or were before.
    pub(crate) fn are_of<T>(&self, layer: &Arc<ArcSwap<T>>) -> bool {
        ptr::addr_eq(self.source.as_ptr(), Arc::as_ptr(layer))
    }

    /// The store must [support](Self::supports) the rules.
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

    pub(crate) fn supports<'a>(&self, rules: impl Iterator<Item = &'a Rule>) -> Result<(), Error> {
        let rules: SmallVec<[&Rule; 4]> = rules.collect();
        let is_taken =
            |(place, rule): &(usize, &&Rule)| rules[..*place].iter().any(|other| other.name() == rule.name());
        if let Some((_, rule)) = rules.iter().enumerate().find(is_taken) {
            return Err(Error::invalid(format!(
                "the name {:?} is given to two policies that are decided together: counters, \
                 headers and metrics could not tell them apart: each needs its own",
                rule.name().as_str()
            )));
        }
        let requirements: SmallVec<[Requirement<'_>; 4]> = rules.into_iter().map(Rule::requirement).collect();
        self.inner.capabilities(&requirements).map(drop)
    }

    pub(super) fn check_costs(rules: &[Rule]) -> Result<(), Error> {
        let Some((rule, (cost, capacity))) = rules.iter().find_map(|rule| Some((rule, rule.excess()?))) else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "rule {:?}: a check costs {cost} and the quota holds {capacity} at most, so all would be denied: lower the \
             cost, or raise the limit or burst",
            rule.name().as_str()
        )))
    }

    pub(super) fn supports_refunds(&self, places: &[usize]) -> Result<(), Error> {
        let of = |place: &usize| Requirement { settles: Settles::ByOutcome, ..self.rules[*place].requirement() };
        let requirements: SmallVec<[Requirement<'_>; 4]> = places.iter().map(of).collect();
        self.inner.capabilities(&requirements).map(drop)
    }

    /// A request that is denied by a check without a lookup causes no lookups. Their time does not count as the
    /// decision's.
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
