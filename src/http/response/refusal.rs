//! The reasons for which a request is not admitted.

use bytes::Bytes;
use http::Response;

use crate::core::{Decision, Error};
use crate::telemetry::Undecided;

/// The reason for which a request is not admitted.
pub(crate) enum Refusal {
    /// A policy refuses it, by this decision; boxed, as the account of an admitted request is small.
    Refused(Box<Decision>),
    /// A key extractor rejects it, with this response.
    Rejected(Box<Response<Bytes>>),
    /// It has no key, and a policy denies such requests.
    NoKey,
    /// Its key is ambiguous, and a policy denies such requests.
    Ambiguous,
    /// Its client is on a deny list.
    Denied,
    /// No decision could be made: the store failed or timed out, or the lookup of a key did.
    Failed(Error),
}

impl Refusal {
    /// Returns why there was no decision; `None` if there was one.
    pub(crate) fn undecided(&self) -> Option<Undecided> {
        match self {
            Refusal::NoKey | Refusal::Denied => Some(Undecided::Forbidden),
            Refusal::Ambiguous => Some(Undecided::Ambiguous),
            Refusal::Rejected(_) => Some(Undecided::Rejected),
            Refusal::Failed(_) => Some(Undecided::Unavailable),
            Refusal::Refused(_) => None,
        }
    }
}
