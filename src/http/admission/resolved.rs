//! What a policy makes of a request, and what it knows before that.

use std::pin::Pin;
use std::sync::Arc;

use crate::http::gate::Gate;
use crate::http::key::Extracted;
use crate::http::policy::Terms;
use crate::http::response::Refusal;
use crate::limiter::{Draft, Plan};
use crate::store::Check;
use crate::{Key, Quota};

/// What a policy makes of a request.
pub(crate) enum Resolved {
    /// What it checks.
    Check(Check),
    /// It does not apply.
    Skip,
    /// It has to look something up, and has not begun.
    Waiting(Box<Waiting>),
    /// It refuses the request; boxed, as it is large and rare.
    Refused(Box<Refusal>),
}

impl Resolved {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Resolved::Refused(Box::new(refusal))
    }

    /// What is left of it for a policy that never refuses.
    pub(crate) fn in_shadow(self) -> Self {
        match self {
            Resolved::Refused(_) => Resolved::Skip,
            Resolved::Waiting(waiting) => Resolved::Waiting(Box::new(waiting.in_shadow())),
            other => other,
        }
    }

    /// Adds it to what is decided; or the request is refused.
    pub(crate) fn add_to(self, plan: &mut Plan<Waiting>, place: usize) -> Option<Refusal> {
        match self {
            Resolved::Check(check) => plan.add(place, check),
            Resolved::Skip => {}
            Resolved::Waiting(waiting) => plan.findings.push(*waiting),
            Resolved::Refused(refusal) => return Some(*refusal),
        }
        None
    }
}

/// A policy's check before its key is known, and on which terms it is made.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) draft: Draft,
    pub(super) terms: Terms,
}

/// A policy whose check is not known yet.
pub(crate) struct Waiting {
    pub(super) gate: Arc<Gate>,
    pub(super) ask: Ask,
    pub(super) stage: Stage,
    /// It never refuses.
    pub(super) in_shadow: bool,
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is looked up.
pub(super) enum Stage {
    Key(Pending<Extracted>),
    Tier(Key, Pending<Option<Quota>>),
}

impl Waiting {
    pub(super) fn new(gate: Arc<Gate>, ask: Ask, stage: Stage) -> Self {
        Self { gate, ask, stage, in_shadow: false }
    }

    pub(super) fn in_shadow(self) -> Self {
        Self { in_shadow: true, ..self }
    }
}
