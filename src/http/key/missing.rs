//! What becomes of requests without a key.

/// What happens to a request that has no key for a policy, or none that is certain.
///
/// An [ambiguous](super::Extracted::Ambiguous) key is never skipped, nor a counter of its own: a
/// client could choose either by writing one thing twice. All such requests of a policy share one counter,
/// of the policy's own quota, apart from those that have no key; or they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policy does not apply to it; those with an ambiguous key are counted together.
    Skip,
    /// It is refused: with 403, or with 400 if its key is ambiguous.
    Deny,
    /// It is counted together with all others that have none; those with an ambiguous key are counted
    /// together apart from these.
    Share,
}
