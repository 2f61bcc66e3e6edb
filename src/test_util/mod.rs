//! Clocks for tests of your own limits: time that a test sets, so that none of them sleeps.
//!
//! Enable the feature `test-util` among your `dev-dependencies` only: it also enables that of tokio, which makes timers a
//! little slower.
//!
//! ```toml
//! [dev-dependencies]
//! tollgate = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! A [`ManualClock`] is the time of a store, and perhaps that of tokio's timers.

mod clock;

pub use clock::ManualClock;
