//! What tests of the workspace use, too.

#[allow(dead_code, reason = "others use more of it")]
#[path = "../../../../tests/support/doubles.rs"]
pub(crate) mod doubles;
#[path = "../../../../tests/support/log.rs"]
pub(crate) mod log;
