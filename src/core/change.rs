//! What may become of units after the fact.

/// A correction of what was taken, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Gives back units: never more than were taken.
    Refund(u64),
    /// Takes more units, past the limit by at most another capacity.
    Charge(u64),
}
