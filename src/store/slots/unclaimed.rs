//! A decision that may have nobody to receive it.

use std::sync::Arc;

use super::keeper::SlotKeeper;
use crate::core::Error;
use crate::store::Decided;

/// The result of a decision on its way to its caller. If it is dropped before that, its slots are released: the caller
/// has disconnected, and no body of a response will end.
pub(in crate::store) struct Unclaimed {
    keeper: Arc<SlotKeeper>,
    decided: Option<Result<Decided, Error>>,
}

impl Unclaimed {
    /// A result that its caller has not received yet.
    pub(in crate::store) fn new(keeper: Arc<SlotKeeper>, decided: Result<Decided, Error>) -> Self {
        Self { keeper, decided: Some(decided) }
    }

    /// Returns the result, to the caller.
    pub(in crate::store) fn claim(mut self) -> Result<Decided, Error> {
        self.decided.take().expect("it is there until it is claimed or dropped")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(Ok(decided)) = &self.decided {
            drop(self.keeper.hold(&decided.receipt));
        }
    }
}
