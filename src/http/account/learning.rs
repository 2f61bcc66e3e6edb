//! Waiting for what becomes of a change.

use std::mem;
use std::sync::Arc;

use super::Shared;
use super::owed::Sent;
use crate::Error;
use crate::core::error::Kind;
use crate::store::{Applied, Change};

/// Tells an account what became of a change when it is dropped: that nobody knows, if its runtime ends or the
/// store panics before there is an answer.
pub(super) struct Learning {
    shared: Arc<Shared>,
    debt: usize,
    change: Change,
    applied: Result<Vec<Applied>, Error>,
}

impl Learning {
    /// Waits for the store's answer, which may lead to other changes.
    pub(super) fn of(shared: Arc<Shared>, sent: Sent) -> impl Future<Output = ()> + Send {
        let Sent { debt, change, settling } = sent;
        let learning = Self { shared, debt, change, applied: Err(not_learnt()) };
        async move { learning.hear(settling.wait().await) }
    }

    fn hear(mut self, applied: Result<Vec<Applied>, Error>) {
        self.applied = applied;
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        let mut owed = self.shared.owed();
        owed.learn(self.debt, self.change, mem::replace(&mut self.applied, Err(not_learnt())));
        let sent = owed.make_changes(&self.shared.gate, true);
        self.shared.follow(owed, sent);
    }
}

fn not_learnt() -> Error {
    Error::new(Kind::Store, "what became of a settlement is not known: its runtime has ended, or the store panicked")
}
