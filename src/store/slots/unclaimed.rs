//! A decision that may have nobody to receive it.

use std::sync::Arc;

use tokio::time::Instant;

use super::renewer::SlotRenewer;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::Decided;

/// The result of a decision on its way to its caller. If it is dropped before that, its slots are released: the caller
/// has disconnected, and no body of a response will end.
pub(in crate::store) struct Unclaimed {
    renewer: Arc<SlotRenewer>,
    decided: Option<Result<Decided, Error>>,
    /// When it is too late to hold its slots: nothing renews them before.
    until: Option<Instant>,
}

impl Unclaimed {
    /// A result that its caller has not received yet.
    pub(in crate::store) fn new(renewer: Arc<SlotRenewer>, decided: Result<Decided, Error>) -> Self {
        let slots = decided.iter().flat_map(|decided| decided.receipt.taken()).filter(|taken| taken.holds_slots());
        let until = slots.map(|taken| taken.counter.quota().window() / 3).min().map(|time| Instant::now() + time);
        Self { renewer, decided: Some(decided), until }
    }

    /// Returns the result, to the caller.
    ///
    /// # Errors
    ///
    /// That of the result. If the caller did not poll for so long that its slots may expire, they are released, and it
    /// is a timeout.
    pub(in crate::store) fn claim(mut self) -> Result<Decided, Error> {
        if self.until.is_some_and(|until| until < Instant::now()) {
            return Err(Error::new(Kind::Timeout, "the caller did not poll its decision for a third of a slot life"));
        }
        self.decided.take().expect("it is there until it is claimed or dropped")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(Ok(decided)) = &self.decided {
            drop(self.renewer.hold(&decided.receipt));
        }
    }
}
