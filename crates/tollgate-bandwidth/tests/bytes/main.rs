//! Bodies whose bytes are limited.

#[allow(dead_code, reason = "flows use more of it")]
#[path = "../flows/audit.rs"]
mod audit;
mod bodies;
mod invalid;
mod requests;
mod rig;
mod sockets;
#[path = "../../../../tests/support/soon.rs"]
mod soon;
mod terms;
