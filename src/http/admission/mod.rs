//! Whether a request is admitted: what its policies check, then one decision over all of them.

mod ambiguous;
mod judge;
mod resolved;
mod waiting;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;

pub(crate) use self::judge::Judge;
pub(crate) use self::resolved::{Resolved, Waiting};
use crate::core::Mode;
use crate::http::account::Account;
use crate::http::gate::Gate;
use crate::http::response::Refusal;
use crate::limiter::{Places, Plan};
use crate::metrics::Timer;
use crate::store::{Answer, Deadline, Decided};
use crate::{Decision, Error, Outcome, Store};

/// The account of an admitted request, or why it is not admitted.
pub(crate) type Verdict = Result<Account, Refusal>;

/// The way to a [`Verdict`].
pub(crate) enum Admission {
    Known(Option<Verdict>),
    Deciding { pending: Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>, policies: Places, timer: Timer },
    Resolving(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

impl Admission {
    /// Begins to decide about a request, by its head.
    pub(crate) fn of(gate: &Arc<Gate>, parts: &Parts) -> Self {
        let mut plan = Plan::default();
        for place in 0..gate.policies.len() {
            if let Some(refusal) = Judge::new(gate, place, parts).resolve().add_to(&mut plan, place) {
                return Admission::Known(Some(Err(turned_away(gate, refusal))));
            }
        }
        if !plan.findings.is_empty() {
            return Self::later(gate, plan);
        }
        let timer = Timer::start();
        match gate.limits.store.decide(&plan.checks, Deadline::none()) {
            Answer::Ready(decided) => Admission::Known(Some(verdict(gate, &plan.rules, timer, decided))),
            Answer::Pending(pending) => Admission::Deciding { pending, policies: plan.rules, timer },
        }
    }

    fn later(gate: &Arc<Gate>, plan: Plan<Waiting>) -> Self {
        let gate = Arc::clone(gate);
        Admission::Resolving(Box::pin(async move {
            match gate.limits.decide_later(plan).await {
                Ok((policies, timer, decided)) => verdict(&gate, &policies, timer, decided),
                Err(refusal) => Err(turned_away(&gate, *refusal)),
            }
        }))
    }

    pub(crate) fn poll(&mut self, gate: &Arc<Gate>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match self {
            Admission::Known(verdict) => Poll::Ready(verdict.take().expect("an admission is polled until it is ready")),
            Admission::Deciding { pending, policies, timer } => {
                pending.as_mut().poll(cx).map(|decided| verdict(gate, policies, *timer, decided))
            }
            Admission::Resolving(pending) => pending.as_mut().poll(cx),
        }
    }
}

/// A refusal that is known before the store decides.
fn turned_away(gate: &Gate, refusal: Refusal) -> Refusal {
    if let Some(reason) = refusal.undecided() {
        gate.limits.decisions.turned_away(reason);
    }
    refusal
}

fn verdict(gate: &Arc<Gate>, policies: &[usize], timer: Timer, decided: Result<Decided, Error>) -> Verdict {
    let refusals = policies.iter().map(|place| gate.policies[*place].rule().refusals());
    gate.limits.decisions.decided(timer, &decided, refusals);
    let decided = decided.map_err(Refusal::Failed)?;
    log_shadows(&decided.decision);
    if decided.decision.is_allowed() {
        Ok(Account::new(Arc::clone(gate), policies, decided))
    } else {
        Err(Refusal::Refused(decided.decision))
    }
}

/// Logs what policies in shadow would have done.
fn log_shadows(decision: &Decision) {
    let refusing = |outcome: &&Outcome| outcome.mode() == Mode::Shadow && !outcome.is_allowed();
    for outcome in decision.outcomes().iter().filter(refusing) {
        let retry_after = outcome.retry_after();
        tracing::info!(policy = outcome.policy(), ?retry_after, "a policy in shadow would refuse this request");
    }
}
