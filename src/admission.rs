//! Whether a request is admitted: what its policies ask, then one decision over all of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;

use crate::account::Account;
use crate::ask::Resolved;
use crate::gate::Gate;
use crate::metrics::Timer;
use crate::store::{Answer, Check, Decided, Mode};
use crate::{Decision, Error, Outcome, Store};

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The inner service is called.
    Admitted(Account),
    /// A policy refuses it.
    Refused(Decision),
    /// A key extractor refuses it.
    Rejected(Box<Response<Bytes>>),
    /// It lacks the key of a policy that refuses such requests.
    NoKey,
    /// Its client is on a list of those to refuse.
    Denied,
    /// No decision could be made.
    Failed(Error),
}

/// The way to a [`Verdict`].
pub(crate) enum Admission {
    Known(Option<Verdict>),
    Deciding { pending: Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>, policies: Places, timer: Timer },
    Resolving(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

impl Admission {
    pub(crate) fn poll(&mut self, gate: &Arc<Gate>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match self {
            Admission::Known(verdict) => Poll::Ready(verdict.take().expect("an admission is polled until it is ready")),
            Admission::Deciding { pending, policies, timer } => {
                pending.as_mut().poll(cx).map(|decided| gate.verdict(std::mem::take(policies), *timer, decided))
            }
            Admission::Resolving(pending) => pending.as_mut().poll(cx),
        }
    }
}

/// Policies by their places in the gate.
type Places = SmallVec<[usize; 4]>;

/// The policies that apply to a request, by their places, and what they ask the store.
#[derive(Default)]
struct Asked {
    policies: Places,
    checks: SmallVec<[Check; 2]>,
}

impl Asked {
    /// Adds what one policy makes of the request; or the verdict is known.
    fn add(&mut self, policy: usize, resolved: Resolved) -> Option<Verdict> {
        match resolved {
            Resolved::Check(check) => {
                self.policies.push(policy);
                self.checks.push(check);
                None
            }
            Resolved::Skip => None,
            Resolved::Verdict(verdict) => Some(*verdict),
        }
    }
}

impl Gate {
    /// Asks for a request's admission.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Admission {
        let mut asked = Asked::default();
        for policy in 0..self.policies.len() {
            match self.resolve(policy, parts) {
                Answer::Ready(resolved) => {
                    if let Some(verdict) = asked.add(policy, resolved) {
                        return Admission::Known(Some(self.turned_away(verdict)));
                    }
                }
                pending @ Answer::Pending(_) => return self.admit_later(asked, policy, pending, parts),
            }
        }
        let timer = Timer::start();
        match self.store.decide(&asked.checks) {
            Answer::Ready(decided) => Admission::Known(Some(self.verdict(asked.policies, timer, decided))),
            Answer::Pending(pending) => Admission::Deciding { pending, policies: asked.policies, timer },
        }
    }

    /// Goes on when all is known, the first of which has to be waited for.
    fn admit_later(
        self: &Arc<Self>,
        mut asked: Asked,
        from: usize,
        first: Answer<Resolved>,
        parts: &Parts,
    ) -> Admission {
        let others = (from + 1..self.policies.len()).map(|policy| self.resolve(policy, parts));
        let answers: Vec<Answer<Resolved>> = std::iter::once(first).chain(others).collect();
        let gate = Arc::clone(self);
        Admission::Resolving(Box::pin(async move {
            for (policy, answer) in (from..).zip(answers) {
                if let Some(verdict) = asked.add(policy, answer.wait().await) {
                    return gate.turned_away(verdict);
                }
            }
            let timer = Timer::start();
            let decided = gate.store.decide(&asked.checks).wait().await;
            gate.verdict(asked.policies, timer, decided)
        }))
    }

    /// A verdict that is known before the store is asked.
    fn turned_away(&self, verdict: Verdict) -> Verdict {
        self.decisions.turned_away(&verdict);
        verdict
    }

    fn verdict(self: &Arc<Self>, policies: Places, timer: Timer, decided: Result<Decided, Error>) -> Verdict {
        self.decisions.decided(timer, &decided, policies.iter().map(|place| &self.policies[*place]));
        if let Ok(decided) = &decided {
            log_shadows(&decided.decision);
        }
        match decided {
            Ok(decided) if decided.decision.is_allowed() => {
                Verdict::Admitted(Account::new(Arc::clone(self), policies, decided))
            }
            Ok(Decided { decision, .. }) => Verdict::Refused(decision),
            Err(error) => Verdict::Failed(error),
        }
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
