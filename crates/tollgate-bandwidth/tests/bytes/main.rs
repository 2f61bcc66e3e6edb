//! Bodies whose bytes are limited.

#[allow(dead_code, reason = "flows use more of it")]
#[path = "../flows/audit.rs"]
mod audit;
mod bodies;
mod invalid;
#[path = "../../../../tests/support/panics.rs"]
mod panics;
mod requests;
mod rig;
mod sockets;
#[path = "../../../../tests/support/soon.rs"]
mod soon;
mod terms;
