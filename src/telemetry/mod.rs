//! Metrics of decisions, skipped policies, failures of stores, and slots.
//!
//! With the feature `metrics`, the methods of [`Telemetry`] and [`PolicyTelemetry`] count through the recorder that the
//! program installed. The series are in docs/metrics.md. Without it both types are empty, their methods do nothing, and
//! no clock is read.
//!
//! Labels are names of policies and words of this crate, never parts of a request, so clients cannot increase the
//! number of series. Handles are registered with the first event and kept, because looking one up costs more than
//! counting.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "nothing is counted without the feature")
)]

mod events;
#[cfg(feature = "metrics")]
mod series;

pub(crate) use events::{PolicyTelemetry, Skipped, Telemetry, Timer, Undecided, log_ban, log_bans};
