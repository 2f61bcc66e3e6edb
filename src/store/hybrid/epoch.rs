//! Stamps of units that were taken after a reset.
//!
//! What was taken before a reset must not be refunded after it, as it would be refunded from what others
//! have taken since. So stamps of the inner store carry how often their key was reset, if it was.

/// Stamps of the stores here are smaller than 2 to the power of this.
const BITS: u32 = 53;

/// Numbers that fit above a stamp, and below those of charges.
const EPOCHS: u64 = 1 << 9;

/// The stamp of units that were taken in an epoch.
///
/// It is the stamp itself before the first reset, and 0 where another store's stamp leaves no room.
pub(super) fn marked(stamp: u64, epoch: u64) -> u64 {
    match (epoch, stamp >> BITS) {
        (0, _) => stamp,
        (_, 0) => stamp | short(epoch) << BITS,
        // Another store's, that leaves no room: it is from no epoch, so nothing is refunded.
        _ => 0,
    }
}

/// The inner store's stamp, unless the key was reset since.
pub(super) fn unmarked(stamp: u64, epoch: u64) -> Option<u64> {
    if epoch == 0 {
        return Some(stamp);
    }
    (stamp >> BITS == short(epoch)).then_some(stamp & ((1 << BITS) - 1))
}

/// The number of an epoch but the first, among those that fit: no request lives through so many resets.
fn short(epoch: u64) -> u64 {
    1 + (epoch - 1) % (EPOCHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_in_its_own_epoch_only() {
        for stamp in [0, 1, 1_700_000_000_000_000, (1 << BITS) - 1] {
            for epoch in 0..2_000 {
                assert_eq!(unmarked(marked(stamp, epoch), epoch), Some(stamp), "in epoch {epoch}");
                assert_eq!(unmarked(marked(stamp, epoch), epoch + 1), None, "after epoch {epoch}");
                assert!(marked(stamp, epoch) < 1 << 62, "no number of a charge");
            }
        }
    }

    #[test]
    fn stamps_that_leave_no_room_are_kept_until_the_first_reset() {
        let stamp = 1_700_000_000_000_000_000;
        assert_eq!(unmarked(marked(stamp, 0), 0), Some(stamp));
        assert_eq!(unmarked(marked(stamp, 1), 1), None);
    }
}
