//! Requests and responses: through the layer, over sockets, before an upstream, and of the example server.

mod bans;
#[cfg(all(unix, feature = "axum"))]
mod behind_nginx;
#[cfg(all(unix, feature = "axum"))]
mod caches;
#[cfg(all(unix, feature = "axum", feature = "config"))]
mod coming_from;
#[cfg(feature = "axum")]
mod compose;
#[cfg(all(feature = "axum", feature = "lookup"))]
mod explain;
#[cfg(all(feature = "axum", feature = "redis"))]
mod first_steps;
#[cfg(feature = "axum")]
mod grpc;
mod headers;
#[cfg(all(unix, feature = "axum", feature = "redis"))]
mod hostile;
mod layer;
mod limits;
#[cfg(feature = "axum")]
mod order;
#[cfg(feature = "axum")]
mod proxy;
mod queueing;
#[cfg(feature = "axum")]
mod readme;
#[cfg(feature = "axum")]
mod refused_uploads;
#[allow(dead_code, reason = "without axum less of it is used")]
mod rig;
#[cfg(all(unix, feature = "axum", feature = "redis", feature = "config"))]
mod server;
mod slots;
#[cfg(feature = "axum")]
mod sockets;
#[cfg(feature = "axum")]
mod stack;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
mod upstreams;
#[cfg(feature = "axum")]
mod warnings;
mod without_handle;
