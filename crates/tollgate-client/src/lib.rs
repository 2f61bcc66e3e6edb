#![doc = include_str!("../README.md")]

mod advice;
mod future;
mod pace;
mod retry;

pub use tower::retry::budget;

pub use self::future::ResponseFuture;
pub use self::pace::{Pace, PaceLayer};
pub use self::retry::{Retry, RetryLayer};
