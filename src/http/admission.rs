//! Whether a request is admitted: what its policies ask, then one decision over all of them.

pub(crate) mod ask;
mod peek;
pub(crate) mod waiting;

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::http::account::Account;
use crate::http::admission::ask::Resolved;
use crate::http::admission::waiting::Waiting;
use crate::http::gate::Gate;
use crate::metrics::{Timer, Undecided};
use crate::store::{Answer, Check, Deadline, Decided, Mode};
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
    /// It has no certain key for a policy that refuses such requests.
    Ambiguous,
    /// Its client is on a list of those to refuse.
    Denied,
    /// No decision could be made.
    Failed(Error),
}

impl Verdict {
    /// Why nobody decided, if nobody did.
    fn undecided(&self) -> Option<Undecided> {
        match self {
            Verdict::NoKey | Verdict::Denied => Some(Undecided::Forbidden),
            Verdict::Ambiguous => Some(Undecided::Ambiguous),
            Verdict::Rejected(_) => Some(Undecided::Rejected),
            Verdict::Failed(_) => Some(Undecided::Unavailable),
            Verdict::Admitted(_) | Verdict::Refused(_) => None,
        }
    }
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
                pending.as_mut().poll(cx).map(|decided| gate.verdict(policies, *timer, decided))
            }
            Admission::Resolving(pending) => pending.as_mut().poll(cx),
        }
    }
}

/// Policies by their places in the gate.
pub(crate) type Places = SmallVec<[usize; 4]>;

/// The policies that apply to a request, by their places, and what they ask the store.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) policies: Places,
    pub(crate) checks: SmallVec<[Check; 2]>,
    /// Those that have to look something up before.
    pub(crate) waiting: Vec<Waiting>,
}

/// What the store says of the policies that apply, and when it was asked.
pub(crate) type AskedAll = (Places, Timer, Result<Decided, Error>);

impl Asked {
    /// Adds what one policy makes of the request; or the verdict is known.
    pub(crate) fn add(&mut self, policy: usize, resolved: Resolved) -> Option<Verdict> {
        match resolved {
            Resolved::Check(check) => {
                self.policies.push(policy);
                self.checks.push(check);
            }
            Resolved::Skip => {}
            Resolved::Waiting(waiting) => self.waiting.push(*waiting),
            Resolved::Verdict(verdict) => return Some(*verdict),
        }
        None
    }

    /// Adds what was looked up, in the order of the policies.
    fn insert(&mut self, found: Vec<(usize, Check)>) {
        for (policy, check) in found {
            let place = self.policies.partition_point(|before| *before < policy);
            self.policies.insert(place, policy);
            self.checks.insert(place, check);
        }
    }
}

impl Gate {
    /// Asks for a request's admission.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Admission {
        let mut asked = Asked::default();
        for policy in 0..self.policies.len() {
            if let Some(verdict) = asked.add(policy, self.resolve(policy, parts)) {
                return Admission::Known(Some(self.turned_away(verdict)));
            }
        }
        if !asked.waiting.is_empty() {
            return self.admit_later(asked);
        }
        let timer = Timer::start();
        match self.store.decide(&asked.checks, Deadline::none()) {
            Answer::Ready(decided) => Admission::Known(Some(self.verdict(&asked.policies, timer, decided))),
            Answer::Pending(pending) => Admission::Deciding { pending, policies: asked.policies, timer },
        }
    }

    fn admit_later(self: &Arc<Self>, asked: Asked) -> Admission {
        let gate = Arc::clone(self);
        Admission::Resolving(Box::pin(async move {
            match gate.decide_later(asked).await {
                Ok((policies, timer, decided)) => gate.verdict(&policies, timer, decided),
                Err(verdict) => gate.turned_away(verdict),
            }
        }))
    }

    /// Decides what has to look something up before, all of it within the budget.
    ///
    /// Nothing is looked up for a request that is refused by what is known. Of the time that is left
    /// after that, look-ups have half, and the store what they leave.
    pub(crate) async fn decide_later(&self, mut asked: Asked) -> Result<AskedAll, Verdict> {
        let deadline = self.deadline();
        if let Some((timer, refused)) = self.peek(&asked.checks, deadline).await {
            return Ok((asked.policies, timer, refused));
        }
        self.find_out(&mut asked, deadline).await?;
        let timer = Timer::start();
        let decided = self.store.decide(&asked.checks, deadline).wait().await;
        Ok((asked.policies, timer, decided))
    }

    /// By when a decision that begins now has to be made, with all that is looked up for it.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.store.time_for_all())
    }

    /// Looks up what has to be, in half of the time that is left.
    pub(crate) async fn find_out(&self, asked: &mut Asked, deadline: Deadline) -> Result<(), Verdict> {
        let half = deadline.remaining().and_then(|left| Instant::now().checked_add(left / 2));
        let found = self.look_up(mem::take(&mut asked.waiting), half).await?;
        asked.insert(found);
        Ok(())
    }

    /// A verdict that is known before the store is asked.
    fn turned_away(&self, verdict: Verdict) -> Verdict {
        if let Some(reason) = verdict.undecided() {
            self.decisions.turned_away(reason);
        }
        verdict
    }

    fn verdict(self: &Arc<Self>, policies: &[usize], timer: Timer, decided: Result<Decided, Error>) -> Verdict {
        self.decisions.decided(timer, &decided, policies.iter().map(|place| self.policies[*place].refusals()));
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
