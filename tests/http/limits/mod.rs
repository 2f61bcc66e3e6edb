//! Limits asked from code, and the service that tells clients what they have left.

mod asked;
#[cfg(feature = "axum")]
mod failures;
#[cfg(feature = "axum")]
mod inside;
mod selected;
#[cfg(feature = "axum")]
mod status;
mod waiting;
