//! The same client, route or path, written in another way: it is still the same one, or it is refused.
#![cfg(all(feature = "axum", feature = "config"))]

mod addresses;
mod hosts;
mod lists;
mod methods;
mod options;
mod params;
mod paths;
mod preflights;
mod rig;
mod routes;
#[path = "../support/slow.rs"]
mod slow;
