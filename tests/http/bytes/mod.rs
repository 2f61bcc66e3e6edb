//! Bodies whose bytes are limited.

mod bodies;
mod invalid;
mod requests;
mod rig;
#[cfg(feature = "axum")]
mod sockets;
mod terms;
