//! What a policy asks of a store.

use super::{PolicyName, Quota, Settles};

/// What one policy of a layer asks of its store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Requirement<'a> {
    /// The policy's name.
    pub policy: &'a PolicyName,
    /// How much is allowed.
    pub quota: &'a Quota,
    /// Whether units come back by what becomes of a request.
    pub settles: Settles,
    /// Whether some checks leave units to others: their [floor](super::Check::floor) is not 0.
    pub reserves: bool,
}

impl<'a> Requirement<'a> {
    /// What a policy asks which keeps what it took, and has no reserve.
    pub fn new(policy: &'a PolicyName, quota: &'a Quota) -> Self {
        Self { policy, quota, settles: Settles::AsTaken, reserves: false }
    }
}
