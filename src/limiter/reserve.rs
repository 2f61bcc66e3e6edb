//! The reserve: a fixed part of the capacity for critical requests.
//!
//! Checks that are not critical must leave it: its units are their floor. It is a share and not a number of units, so that
//! it follows the quotas of tiers.

use crate::core::{Error, Quota};

/// The units of a [`Share`] in a whole.
const MILLION: u32 = 1_000_000;

/// A share of the capacity in millionths, 1 to 999,999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// Rounds a fraction to millionths, to at least one and not all of them.
    ///
    /// # Errors
    ///
    /// If `fraction` is not above 0 and below 1.
    pub(crate) fn new(fraction: f64) -> Result<Self, Error> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::invalid(format!(
                "reserve {fraction} is not allowed: give a fraction above 0 and below 1"
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 999,999")]
        let millionths = ((fraction * f64::from(MILLION)).round() as u32).clamp(1, MILLION - 1);
        Ok(Self(millionths))
    }

    /// Returns the units that must remain after a check that is not critical: this share of the quota's capacity, rounded
    /// up.
    pub(crate) fn of(self, quota: &Quota) -> u64 {
        let kept = (u128::from(quota.capacity()) * u128::from(self.0)).div_ceil(u128::from(MILLION));
        u64::try_from(kept).unwrap_or(u64::MAX)
    }
}
