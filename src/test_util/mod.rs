//! Utilities to test limits: [`ManualClock`] is a clock that a test sets, and [`FailingStore`] a store that fails,
//! hangs or is slow.
//!
//! Enable the feature `test-util` among your `dev-dependencies` only: it also enables tokio's `test-util`, which makes
//! timers a little slower.
//!
//! ```toml
//! [dev-dependencies]
//! tollgate = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! The crate [`tollgate-test`](https://docs.rs/tollgate-test), which enables the feature, adds requests through a
//! layer, stores that record or decide by a closure, and the conformance suite for custom stores.

mod clock;
mod failing;

pub use clock::ManualClock;
pub use failing::{FailingStore, Held};
