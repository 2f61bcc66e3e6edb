//! What an admitted request owes, until that is settled.

mod debt;
mod handle;
mod owed;
mod parts;
mod shared;
mod wanted;

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use http::response::Parts;
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};

pub use self::handle::{Handle, RealCost};
use self::owed::Owed;
pub(crate) use self::shared::Shared;
use crate::http::gate::Gate;
use crate::store::Decided;
use crate::{Count, Decision};

/// The account of one request. Dropped before there is a response, it settles the request as one
/// whose client went away.
pub(crate) struct Account {
    shared: Arc<Shared>,
    /// The request waits for its turn: what it queues for is unused until then.
    queues: bool,
    stage: Stage,
    /// The decision is shown as it was made.
    is_as_decided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no response yet.
    UnderWay,
    /// Something depends on the trailers of the response.
    AwaitsTrailers,
    Settled,
}

/// Ready once the store has said what became of a request's last changes.
pub(crate) type Settled = oneshot::Receiver<()>;

/// The same, for as long as it may take.
pub(crate) type InTime = Pin<Box<Timeout<Settled>>>;

impl Account {
    pub(crate) fn new(gate: Arc<Gate>, policies: &[usize], decided: Decided) -> Self {
        let Decided { decision, receipt } = decided;
        let owed = Owed::of_layer(&gate, &decision, receipt, policies);
        let shared = Arc::new(Shared::new(gate, decision, owed));
        Self { shared, queues: false, stage: Stage::UnderWay, is_as_decided: false }
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.shared.decision
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    /// Gives whoever serves the request the decision and a handle, in front of those of outer layers.
    #[inline]
    pub(crate) fn enter(&self, extensions: &mut Extensions) {
        if let Some(outer) = extensions.insert(self.decision().clone()) {
            extensions.insert(self.decision().clone().inside(outer));
        }
        if let Some(outer) = extensions.insert(self.handle()) {
            extensions.insert(self.handle().inside(outer));
        }
    }

    /// What to wait for, within the layer's budget.
    pub(crate) fn in_time(&self, settled: Settled) -> InTime {
        Box::pin(timeout(self.gate().limits.store.time_for_all(), settled))
    }

    /// Whether somebody else may change what is owed.
    fn has_handles(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    pub(crate) fn queues(mut self, queues: bool) -> Self {
        self.queues = queues;
        self
    }

    /// Settles with the response, or `None` for an error of the service; what depends on its trailers
    /// [stays open](Self::is_open). Returns what to wait for, if the next request of this client may depend
    /// on it.
    pub(crate) fn settle(&mut self, response: Option<&Parts>) -> Option<Settled> {
        self.stage = Stage::Settled;
        let mut owed = self.shared.owed();
        if owed.ends_as_decided() {
            self.is_as_decided = true;
            return None;
        }
        let real = response.and_then(|parts| parts.extensions.get::<RealCost>());
        let is_open = Cell::new(false);
        let counts = |count: &Count| {
            count.counts(response).unwrap_or_else(|| {
                is_open.set(true);
                true
            })
        };
        owed.end(&self.shared.gate, &self.shared.decision, |options, _, wanted| match (&options.count, real) {
            (Some(count), _) if !counts(count) => 0,
            (_, Some(RealCost(units))) if options.metered => *units,
            _ => wanted,
        });
        if is_open.get() {
            self.stage = Stage::AwaitsTrailers;
        }
        self.shared.end(owed, is_open.get() || self.has_handles())
    }

    /// Whether something is left to settle by the response's trailers. It stays as it is if they are not
    /// waited for.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::AwaitsTrailers
    }

    /// Settles what is open, at the end of a call. Returns what to wait for, as [`settle`](Self::settle).
    pub(crate) fn settle_call(&mut self, has_failed: bool) -> Option<Settled> {
        self.stage = Stage::Settled;
        let mut owed = self.shared.owed();
        owed.end(&self.shared.gate, &self.shared.decision, |options, _, wanted| {
            let counts = options.count.as_ref().and_then(|count| count.counts_call(has_failed));
            if counts == Some(false) { 0 } else { wanted }
        });
        self.shared.end(owed, self.has_handles())
    }

    /// The decision with what was asked and changed since.
    pub(crate) fn shown(&self) -> Decision {
        if self.is_as_decided {
            return self.shared.decision.clone();
        }
        self.shared.owed().shown(&self.shared.decision)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.stage != Stage::UnderWay {
            return;
        }
        let mut owed = self.shared.owed();
        owed.end(&self.shared.gate, &self.shared.decision, |options, outcome, wanted| {
            let unused = self.queues && !outcome.delay().is_zero();
            if unused || options.refund_dropped { 0 } else { wanted }
        });
        drop(self.shared.end(owed, self.has_handles()));
    }
}
