//! For tests of your own limits: time that a test sets, and stores that fail, hang or refuse as it says.
//!
//! Enable the feature `test-util` among your `dev-dependencies` only: it also enables that of tokio, which makes timers a
//! little slower.
//!
//! ```toml
//! [dev-dependencies]
//! tollgate = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! | for a test of | there is |
//! | --- | --- |
//! | limits as time passes, without sleeping | [`ManualClock`] |
//! | what clients receive | [`send`] |
//! | a store that is unavailable or slow | [`FailingStore`] |
//! | what follows from a decision, whatever the limits are | [`StoreFn`] |
//! | what is charged and refunded, and for which keys | [`RecordingStore`] |
//!
//! In the repository, `docs/testing.md` shows the tests that most services want. The crate `tollgate-test` has the
//! conformance suite for a store of your own.

mod clock;
mod failing;
mod send;
mod stores;

pub use clock::ManualClock;
pub use failing::{FailingStore, Held};
pub use send::{TestResponse, send};
pub use stores::{Recorded, RecordingStore, StoreFn};
