//! What tests of the root use, too.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/time.rs"]
pub(crate) mod time;
