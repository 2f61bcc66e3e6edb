//! What is true of algorithms besides their answers, which the conformance suite of the crate has.

mod bounds;
#[cfg(feature = "redis")]
mod format;
