//! What tests of the root use, too.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/slow.rs"]
pub(crate) mod slow;
#[path = "../../../../tests/support/soon.rs"]
pub(crate) mod soon;
