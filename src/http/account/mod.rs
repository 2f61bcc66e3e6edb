//! Accounts: the debts of an admitted request, until they are settled.
//!
//! A decision takes each policy's cost before the service is called. The final cost may differ: the
//! [`Handle`] charges and refunds, the response has a [`RealCost`], or does not count. An [`Account`] begins with the
//! decision, ends with the response (or when it is dropped), and makes the store's counters follow.
//!
//! One request has one [`Shared`], for the layer and all handles. Of most requests it is the decision alone; where
//! something may change, [`unsettled`] has it. In that, [`debts`] has a [`debt`] for each counter that can still change; a
//! debt has the units wanted ([`wanted`]) and those that the store really took ([`parts`]). Charges are sent at once, one
//! at a time for each debt; refunds at the end. docs/accounts.md has the rules for users.
//!
//! Slots are no debts: [`slots`] holds those of the request until its response has a body, which holds them from then on.
//!
//! Nor are [`strikes`], which policies that ban by failures count with the response.
//!
//! The invariant: a store never refunds more for a request than it took or charged.

mod body_error;
mod debt;
mod debts;
mod handle;
mod metered;
mod parts;
mod request_body;
mod shared;
mod slots;
mod strikes;
mod unsettled;
mod wanted;

use std::borrow::Cow;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use http::response::Parts;
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};

pub use self::body_error::BodyError;
pub(crate) use self::body_error::BoxError;
use self::debts::Debts;
pub use self::handle::{Handle, RealCost};
pub(crate) use self::metered::{ByteChecks, Meter, Metered, has_body};
pub use self::request_body::RequestBody;
pub(crate) use self::shared::Shared;
use self::strikes::Strikes;
use self::unsettled::Unsettled;
use crate::core::Decision;
use crate::http::gate::Gate;
use crate::http::policy::{AwaitsRefusals, Count};
use crate::store::{Decided, SlotGuard};

/// The account of one request. If it is dropped before there is a response, the request is settled as cancelled.
pub(crate) struct Account {
    shared: Arc<Shared>,
    /// What is struck if the request fails.
    strikes: Option<Box<Strikes>>,
    turn: Turn,
    /// Whether the layer is inside of another one.
    has_outer: bool,
    stage: Stage,
    /// Whether nothing has changed since the decision, so that the decision itself is what clients see.
    is_as_decided: bool,
}

/// The turn of a request in a leaky bucket that queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has none to wait for, or it came.
    Now,
    /// It has to wait.
    Later,
    /// It waits, and has not used its place yet.
    Awaited,
}

/// How far a request is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no response yet.
    InFlight,
    /// There is a response, and something depends on its trailers.
    AwaitsTrailers,
    /// There is nothing left to settle.
    Ended,
}

/// Resolves once the store has replied to the last changes of a request.
pub(crate) type StoreReplied = oneshot::Receiver<()>;

/// The same, bounded by the layer's budget.
pub(crate) type InTime = Pin<Box<Timeout<StoreReplied>>>;

impl Account {
    /// Opens the account of an admitted request; `policies` are the places of those in the decision, in its order.
    fn new(gate: Arc<Gate>, policies: &[usize], bytes: ByteChecks, decided: Decided) -> Self {
        let Decided { decision, receipt } = decided;
        let is_delayed = !decision.delay().is_zero();
        let slots = SlotGuard::new(gate.limits.store.hold(&receipt));
        let strikes = Strikes::of_layer(&gate, &decision, &receipt, policies);
        let debts = Debts::of_layer(&gate, &decision, &receipt, policies);
        let shared = Shared::with_unsettled(gate, decision, Unsettled::new(debts, bytes, slots));
        let mut account = Self::of(shared);
        account.strikes = strikes;
        if is_delayed {
            account.turn = Turn::Later;
        }
        account
    }

    /// Opens the account of an admitted request of which nothing is settled, so far.
    #[inline]
    fn of_nothing(gate: Arc<Gate>, decision: Decision) -> Self {
        Self::of(Shared::new(gate, decision))
    }

    #[inline]
    fn of(shared: Shared) -> Self {
        let (shared, stage, turn) = (Arc::new(shared), Stage::InFlight, Turn::Now);
        Self { shared, strikes: None, turn, has_outer: false, stage, is_as_decided: false }
    }

    /// Returns whether the request has to wait for its turn.
    pub(crate) fn is_delayed(&self) -> bool {
        self.turn == Turn::Later
    }

    /// Returns the decision as it was made.
    pub(crate) fn decision(&self) -> &Decision {
        self.shared.decision()
    }

    /// Returns the gate that the request began with, even if policies were replaced since.
    pub(crate) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Returns a handle for the service.
    fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    /// Inserts a handle into the extensions of the request, in front of that of an outer layer, unless requests are to
    /// have none of this layer; and a mark, if a policy awaits what layers inside refuse, as a handle may be taken out.
    #[inline]
    fn enter(&mut self, extensions: &mut Extensions) {
        if self.gate().awaits_refusals {
            extensions.insert(AwaitsRefusals);
        }
        if !self.gate().has_handles {
            if let Some(outer) = extensions.get::<Handle>() {
                self.has_outer = true;
                outer.note_inner();
            }
            return;
        }
        if let Some(outer) = extensions.insert(self.handle()) {
            self.has_outer = true;
            outer.note_inner();
            extensions.insert(self.handle().inside(outer));
        }
    }

    /// Bounds a wait for the store by the layer's budget.
    pub(crate) fn in_time(&self, settled: StoreReplied) -> InTime {
        Box::pin(timeout(self.gate().limits.store.decision_budget(), settled))
    }

    /// Returns whether a handle is left, which can still change its debts.
    fn has_handles(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Sets whether the request waits for its turn, so that dropping it refunds its place.
    pub(crate) fn queues(mut self, queues: bool) -> Self {
        self.turn = if queues { Turn::Awaited } else { Turn::Now };
        self
    }

    /// Ends the request if nothing may have changed since the decision; otherwise it is to be [settled](Self::settle).
    #[inline]
    pub(crate) fn ends_as_decided(&mut self) -> bool {
        let ends = self.shared.ends_unchanged();
        if ends {
            (self.stage, self.is_as_decided) = (Stage::Ended, true);
        }
        ends
    }

    /// Settles the request by the head of its response; `None` is an error of the service. What depends on the trailers
    /// [stays unsettled](Self::awaits_trailers).
    ///
    /// Returns what the response has to wait for, if the client's next request may depend on it.
    pub(crate) fn settle(&mut self, response: Option<&Parts>) -> Option<StoreReplied> {
        self.stage = Stage::Ended;
        let Some(unsettled) = self.shared.end_changes() else {
            self.is_as_decided = true;
            return None;
        };
        unsettled.warn_of_unlimited(&self.shared.gate, response);
        let strikes = self.strikes.as_mut();
        let may_strike =
            strikes.is_some_and(|strikes| strikes.settle(&self.shared.gate, |count| count.counts(response)));
        let mut debts = unsettled.debts();
        if debts.ends_as_decided() && !may_strike {
            self.is_as_decided = true;
            return None;
        }
        let real = response.and_then(|parts| parts.extensions.get::<RealCost>());
        let awaits_trailers = Cell::new(may_strike);
        let counts = |count: &Count| {
            count.counts(response).unwrap_or_else(|| {
                awaits_trailers.set(true);
                true
            })
        };
        debts.end(&self.shared.gate, self.shared.decision(), |options, _, wanted| match (&options.count, real) {
            (Some(count), _) if !counts(count) => 0,
            (_, Some(RealCost(units))) if options.metered => *units,
            _ => wanted,
        });
        if awaits_trailers.get() {
            self.stage = Stage::AwaitsTrailers;
        }
        self.shared.end(debts, awaits_trailers.get() || self.has_handles())
    }

    /// Warns of a real cost that no policy charges, neither here nor in a layer outside or inside.
    #[cold]
    pub(crate) fn warn_of_real_cost(&self) {
        let gate = self.gate();
        let is_alone = !self.has_outer && !self.shared.has_inner() && !self.shared.has_metered_check();
        if is_alone && !gate.policies.is_empty() {
            gate.limits.warned.unmetered();
        }
    }

    /// Returns whether something is left to settle by the trailers of the response. It stays as it is if the account is
    /// dropped before they come.
    pub(crate) fn awaits_trailers(&self) -> bool {
        self.stage == Stage::AwaitsTrailers
    }

    /// Settles what depended on the trailers. Returns what they have to wait for, as [`settle`](Self::settle).
    pub(crate) fn settle_call(&mut self, has_failed: bool) -> Option<StoreReplied> {
        self.stage = Stage::Ended;
        if let Some(strikes) = &mut self.strikes {
            strikes.settle(&self.shared.gate, |count| count.counts_call(has_failed));
        }
        let mut debts = self.shared.unsettled()?.debts();
        debts.end(&self.shared.gate, self.shared.decision(), |options, _, wanted| {
            let counts = options.count.as_ref().and_then(|count| count.counts_call(has_failed));
            if counts == Some(false) { 0 } else { wanted }
        });
        self.shared.end(debts, self.has_handles())
    }

    /// Returns the slots of the request, for the body of its response to hold until it ends.
    pub(crate) fn pass_slots(&self) -> SlotGuard {
        self.shared.pass_slots()
    }

    /// Returns what the body of the response takes its bytes from; `None` if they are not limited.
    pub(crate) fn response_meter(&self) -> Option<Box<Meter>> {
        self.shared.response_meter()
    }

    /// Returns the decision as clients see it: with the checks, charges and refunds made since.
    pub(crate) fn shown(&self) -> Cow<'_, Decision> {
        match self.shared.unsettled().filter(|_| !self.is_as_decided) {
            Some(unsettled) => Cow::Owned(unsettled.debts().shown(self.shared.decision())),
            None => Cow::Borrowed(self.shared.decision()),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let is_unanswered = self.stage == Stage::InFlight;
        // Ended first: a handle that takes slots from now on releases them by itself.
        let unsettled = if is_unanswered { self.shared.end_changes() } else { None };
        drop(self.shared.pass_slots());
        let Some(unsettled) = unsettled else { return };
        let mut debts = unsettled.debts();
        debts.end(&self.shared.gate, self.shared.decision(), |options, outcome, wanted| {
            let unused = self.turn == Turn::Awaited && !outcome.delay().is_zero();
            if unused || options.refund_dropped { 0 } else { wanted }
        });
        drop(self.shared.end(debts, self.has_handles()));
    }
}

/// A request that was admitted.
pub(crate) enum Admitted {
    /// Something may change until its response, or later.
    WithAccount(Account),
    /// Nothing is settled, and there is no handle: nothing can change any more.
    AsDecided { gate: Arc<Gate>, decision: Decision },
    /// A clone of the layer, outside, has counted it.
    Outside,
}

impl Admitted {
    /// A request that the store decided; `policies` are the places of those in the decision, in its order.
    pub(crate) fn new(gate: Arc<Gate>, policies: &[usize], bytes: ByteChecks, decided: Decided) -> Self {
        if !gate.settles_nothing || !decided.decision.delay().is_zero() {
            return Self::WithAccount(Account::new(gate, policies, bytes, decided));
        }
        let decision = decided.decision;
        if gate.has_handles {
            return Self::WithAccount(Account::of_nothing(gate, decision));
        }
        Self::AsDecided { gate, decision }
    }

    /// Returns whether the request has to wait for its turn.
    pub(crate) fn is_delayed(&self) -> bool {
        match self {
            Self::WithAccount(account) => account.is_delayed(),
            Self::AsDecided { .. } | Self::Outside => false,
        }
    }

    /// Inserts a handle into the extensions of the request, if it is to have one.
    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        if let Self::WithAccount(account) = self {
            account.enter(extensions);
        }
    }
}
