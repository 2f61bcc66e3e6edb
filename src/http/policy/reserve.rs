//! Units kept for requests that matter most.

use std::sync::Arc;

use http::request::Parts;

use super::scope::Predicate;
use crate::{Error, Quota};

const MILLION: u32 = 1_000_000;

/// A share of the capacity that only critical requests may use.
#[derive(Clone)]
pub(crate) struct Reserve {
    /// Millionths of the capacity.
    share: u32,
    critical: Arc<Predicate>,
}

impl Reserve {
    pub(super) fn new(fraction: f64, critical: Arc<Predicate>) -> Result<Self, Error> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::invalid(format!(
                "reserve {fraction} is not allowed: give a fraction above 0 and below 1"
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 999,999")]
        let share = ((fraction * f64::from(MILLION)).round() as u32).clamp(1, MILLION - 1);
        Ok(Self { share, critical })
    }

    pub(crate) fn is_critical(&self, parts: &Parts) -> bool {
        (self.critical)(parts)
    }

    /// The units that must remain after a request that is not critical, rounded up.
    pub(crate) fn kept(&self, quota: &Quota) -> u64 {
        let kept = (u128::from(quota.capacity()) * u128::from(self.share)).div_ceil(u128::from(MILLION));
        u64::try_from(kept).unwrap_or(u64::MAX)
    }
}
