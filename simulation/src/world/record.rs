//! What became of a request.

use tokio::time::Instant;

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) cost: u64,
    pub(super) user: u8,
    pub(super) process: usize,
    pub(super) began: Instant,
    /// When its handler was called, or it was answered without.
    pub(super) decided: Option<Instant>,
    pub(super) decision: Option<tollgate::Decision>,
    pub(super) is_admitted: bool,
    pub(super) status: Option<u16>,
    pub(super) ended: Option<Instant>,
    /// Its caller went away.
    pub(super) has_left: bool,
    /// An answer, a charge or a refund of it may have been lost.
    pub(super) is_excused: bool,
    pub(super) charged: u64,
    pub(super) refunded: u64,
    /// It waited on a runtime of its own.
    pub(super) is_elsewhere: bool,
}
