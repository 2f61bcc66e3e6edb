//! tollgate's client under a simulated Redis.
//!
//! A run is made from a seed: which stores and policies there are, which requests come and what their
//! handlers do, and which faults happen meanwhile. The client is the real one. What is around it is
//! not: time is tokio's paused clock, connections are in memory, and the server is [`server::Node`], which
//! runs the crate's own Lua.

pub mod host;
pub mod server;
pub mod world;
