//! What a client obeys and when it gives up, by tokio's time, against wiremock and against our own server.

mod bounds;
mod herd;
mod hostile;
mod methods;
mod obeys;
mod pacing;
mod readiness;
mod rig;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/server.rs"]
mod server;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/slow.rs"]
mod slow;
mod sockets;
mod stampede;
