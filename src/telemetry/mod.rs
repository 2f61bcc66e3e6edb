//! What operators see of decisions, skips, failures of stores and slots.
//!
//! The methods of [`Telemetry`] and [`PolicyTelemetry`] are called where these happen. With the feature `metrics` they
//! count, through the recorder that the program installed; docs/metrics.md lists the series. Without it both types are
//! empty, their methods do nothing, and no clock is read.
//!
//! Labels are names of policies and words of this crate, never anything of a request, so clients cannot make the number
//! of series grow. Handles are registered with the first event and kept, because looking one up costs more than
//! counting.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "nothing is counted without the feature")
)]

mod events;
#[cfg(feature = "metrics")]
mod series;

pub(crate) use events::{PolicyTelemetry, Skipped, Telemetry, Timer, Undecided};
