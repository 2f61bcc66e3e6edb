//! What tests of the root use, too.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/control.rs"]
mod control;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/log.rs"]
pub(crate) mod log;
#[path = "../../../../tests/support/panics.rs"]
pub(crate) mod panics;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/server.rs"]
pub(crate) mod server;
