//! What those receive who are late.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::lane::Lane;
use super::lanes::Lanes;
use crate::Error;
use crate::store::redis::connections::Patience;

/// What those receive who are late now, and since when: late at once is one failure.
#[derive(Debug, Default)]
pub(super) struct Lateness(Option<(Instant, Error)>);

impl Lateness {
    /// The error of those who are late now: who waited for the same silence tells nothing new.
    pub(super) fn error(&mut self, now: Instant, patience: Patience) -> Error {
        let known = self.0.take().filter(|(since, _)| is_same(*since, now, patience.budget));
        let (_, error) = self.0.insert(known.unwrap_or_else(|| (now, patience.late())));
        error.shared()
    }
}

/// Whether who was late then and who is late now waited for the same.
pub(super) fn is_same(then: Instant, now: Instant, budget: Duration) -> bool {
    now.saturating_duration_since(then) < budget / 4
}

impl Lanes {
    /// The error of who waited for the lane of another runtime, which was not there to look at the
    /// clock. Those who are late at once receive the same, as from the lane.
    pub(in crate::store::redis) fn late(&self, patience: Patience) -> Error {
        let Some(lane) = self.used() else { return patience.late() };
        let mut stall = lane.stall.lock().unwrap_or_else(PoisonError::into_inner);
        stall.error(Instant::now(), patience)
    }

    /// The runtime on which the answers to the calling one are received.
    pub(in crate::store::redis) fn runtime(&self) -> Option<Handle> {
        self.used().map(|lane| lane.runtime.clone())
    }

    /// The lane that is used in the calling runtime, if there is one.
    fn used(&self) -> Option<Arc<Lane>> {
        self.home.known(Handle::try_current().ok().as_ref())
    }
}
