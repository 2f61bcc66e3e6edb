//! Admission of a request, by one decision over all policies that apply to it.
//!
//! First, each policy is [resolved](Resolved): it does not apply, it denies the request by its key, it becomes a check,
//! or it needs a lookup of its key or its quota. The first denial ends the admission. Then one call sends all checks to
//! the store.
//!
//! No lookup starts before all policies have been resolved by the head alone, so a request that a later policy denies
//! causes no lookup. No units are taken before all lookups have finished.

mod judge;
mod resolved;

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;

pub(crate) use self::judge::PolicyResolver;
use self::resolved::LookupStage;
pub(crate) use self::resolved::{PendingPolicy, Resolved, Skip};
use crate::core::{Decision, Error, Mode};
use crate::http::account::{Admitted, RateLimitHandle};
use crate::http::gate::LayerState;
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::limiter::{PendingCheck, Places, Plan};
use crate::store::{Ask, Call, Check, Deciding, StoreDecision};
use crate::telemetry::Timer;

pub(crate) type AdmissionResult = Result<Admitted, Refusal>;

pub(crate) enum Admission {
    /// `None` after the result was returned.
    Known(Option<AdmissionResult>),
    /// If the admission is dropped, the store may still take the units, and they stay taken. `timer` started with the
    /// call.
    Deciding { call: Call, places: Places, timer: Timer },
    /// If the admission is dropped during lookups, nothing is taken, and the lookups continue.
    Resolving(Pin<Box<dyn Future<Output = AdmissionResult> + Send>>),
}

impl Admission {
    pub(crate) fn new(gate: &Arc<LayerState>, parts: &Parts, outside: Option<&Decision>) -> Self {
        let mut plan = Plan::default();
        let lacking = match resolve(gate, parts, outside, &mut plan) {
            Ok(lacking) => lacking,
            Err(refusal) => return Admission::Known(Some(Err(counted(gate, refusal)))),
        };
        if outside.is_some() && plan.checks.is_empty() && plan.pending.is_empty() {
            return Admission::Known(Some(Ok(Admitted::Outside)));
        }
        if plan.pending.is_empty() {
            lacking.warn_unless_limited(gate, &plan.checks);
            return Self::by(gate, &mut plan);
        }
        Self::after_lookups(gate, plan, lacking)
    }

    /// Takes the plan by reference, because it is too large to move.
    #[inline]
    fn by(gate: &Arc<LayerState>, plan: &mut Plan<PendingPolicy>) -> Self {
        let timer = gate.limits.telemetry.start();
        match gate.limits.store.begin(&plan.checks, Ask::default()) {
            Deciding::Ready(decided) => Admission::Known(Some(verdict(gate, &plan.places, timer, decided))),
            Deciding::Waits(call) => {
                let call = call.with_checks(plan.checks.drain(..).collect());
                Admission::Deciding { call, places: mem::take(&mut plan.places), timer }
            }
        }
    }

    fn after_lookups(gate: &Arc<LayerState>, plan: Plan<PendingPolicy>, mut lacking: Lacking) -> Self {
        let gate = Arc::clone(gate);
        Admission::Resolving(Box::pin(async move {
            match gate.limits.decide(plan).await {
                Ok((plan, timer, decided)) => {
                    for waiting in &plan.pending {
                        waiting.skipped.into_iter().for_each(|skip| lacking.add(&gate, waiting.place(), skip));
                    }
                    lacking.warn_unless_limited(&gate, &plan.checks);
                    verdict(&gate, &plan.places, timer, decided)
                }
                Err(refusal) => Err(counted(&gate, *refusal)),
            }
        }))
    }

    /// Panics if the verdict was returned before. `gate` is the request's own.
    pub(crate) fn poll(&mut self, gate: &Arc<LayerState>, cx: &mut Context<'_>) -> Poll<AdmissionResult> {
        match self {
            Admission::Known(verdict) => Poll::Ready(verdict.take().expect("an admission is polled until it is ready")),
            Admission::Deciding { call, places, timer } => {
                let decided = ready!(Pin::new(call).poll(cx));
                Poll::Ready(verdict(gate, places, *timer, decided))
            }
            Admission::Resolving(pending) => pending.as_mut().poll(cx),
        }
    }
}

fn counts(decision: &Decision, policy: &Policy) -> bool {
    decision.outcomes().iter().any(|outcome| !outcome.is_hidden() && outcome.policy() == policy.name())
}

/// Skips policies that have counted the request in an outer layer (`outside`). Stops at the first denial.
fn resolve(
    gate: &Arc<LayerState>,
    parts: &Parts,
    outside: Option<&Decision>,
    plan: &mut Plan<PendingPolicy>,
) -> Result<Lacking, Refusal> {
    if gate.policies.is_empty() {
        gate.limits.warned.no_rules();
    }
    let mut lacking = Lacking::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        if outside.is_some_and(|outside| counts(outside, policy)) {
            gate.limits.warned.twice();
            continue;
        }
        match PolicyResolver::resolve(gate, place, parts, true) {
            Resolved::Check(check) => {
                if check.is_only_for_ban() {
                    lacking.add(gate, place, Skip::Scope);
                }
                plan.add(place, check);
            }
            Resolved::Skip(skip) => lacking.add(gate, place, skip),
            Resolved::Waiting(waiting) => plan.pending.push(*waiting),
            Resolved::Refused(refusal) => return Err(*refusal),
        }
    }
    if lacking.policy.is_some() || !plan.pending.is_empty() {
        lacking.is_limited |= parts.extensions.get::<RateLimitHandle>().is_some_and(RateLimitHandle::is_limited);
    }
    Ok(lacking)
}

/// The missing key of a request, and whether anything else limits the request.
#[derive(Clone, Copy, Debug, Default)]
struct Lacking {
    /// First policy whose key is missing, unless the policy sets `MissingKey::Skip` itself.
    policy: Option<usize>,
    is_limited: bool,
}

impl Lacking {
    fn add(&mut self, gate: &LayerState, place: usize, skip: Skip) {
        if let Some(reason) = skip.reason() {
            gate.skips[place].skipped(reason);
        }
        match skip {
            Skip::NoKey if !gate.policies[place].skips_on_purpose() => self.policy = self.policy.or(Some(place)),
            skip => self.is_limited |= skip == Skip::Listed,
        }
    }

    /// A peek at a ban limits nothing. A check in shadow mode limits nothing, unless the policy without a key is in
    /// shadow mode too.
    fn warn_unless_limited(self, gate: &LayerState, checks: &[Check]) {
        let Some(place) = self.policy.filter(|_| !self.is_limited) else { return };
        let mode = gate.policies[place].rule().mode();
        let limits = |check: &Check| !check.is_only_for_ban() && (check.mode == Mode::Enforce || check.mode == mode);
        if !checks.iter().any(limits) {
            gate.policies[place].warn_of_no_key();
        }
    }
}

impl PendingCheck for PendingPolicy {
    type Error = Box<Refusal>;

    fn place(&self) -> usize {
        self.keyless.draft.place
    }

    async fn resolve(&mut self) -> Result<Option<Check>, Box<Refusal>> {
        let place = self.place();
        loop {
            let resolved = match &mut self.stage {
                LookupStage::Key(pending) => {
                    let extracted = pending.await;
                    PolicyResolver::without_parts(&self.gate, place).resolve_key(self.keyless.clone(), extracted)
                }
                LookupStage::Tier(key, pending) => {
                    let found = pending.await;
                    let draft = self.keyless.draft.clone();
                    PolicyResolver::without_parts(&self.gate, place).check_tiered(draft, key.clone(), found)
                }
            };
            match resolved {
                // After the key, its quota may need a lookup too.
                Resolved::Waiting(next) => (self.keyless, self.stage) = (next.keyless, next.stage),
                Resolved::Check(check) => {
                    self.skipped = check.is_only_for_ban().then_some(Skip::Scope);
                    return Ok(Some(check));
                }
                Resolved::Skip(skip) => {
                    self.skipped = Some(skip);
                    return Ok(None);
                }
                Resolved::Refused(refusal) if self.in_shadow || !self.keyless.denies(&refusal) => return Ok(None),
                Resolved::Refused(refusal) => return Err(refusal),
            }
        }
    }
}

fn counted(gate: &LayerState, refusal: Refusal) -> Refusal {
    if let Some(reason) = refusal.undecided() {
        gate.limits.telemetry.undecided(reason);
    }
    refusal
}

#[inline]
fn verdict(
    gate: &Arc<LayerState>,
    places: &[usize],
    timer: Timer,
    mut decided: Result<StoreDecision, Error>,
) -> AdmissionResult {
    if let Ok(decided) = &mut decided
        && let Some(refused) = gate.refusal_of(decided)
    {
        // Nothing needs a refund, because a request takes nothing from a layer that counts other units.
        decided.decision = refused;
    }
    gate.limits.telemetry.decided(timer, decided.as_ref().map(|decided| &decided.decision));
    if let Ok(decided) = &decided {
        gate.events.decided(&gate.limits.telemetry, &decided.decision);
    }
    match decided {
        Ok(decided) if decided.decision.is_allowed() => Ok(Admitted::new(Arc::clone(gate), places, decided)),
        Ok(decided) => Err(Refusal::Refused(Box::new(decided.decision))),
        Err(error) => Err(Refusal::Failed(error)),
    }
}
