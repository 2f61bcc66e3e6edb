//! Why a request is not admitted.

use bytes::Bytes;
use http::Response;

use crate::metrics::Undecided;
use crate::{Decision, Error};

/// Why a request is not admitted.
pub(crate) enum Refusal {
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

impl Refusal {
    /// Why nobody decided, if nobody did.
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
