//! PostgreSQL as a store, on real servers. Each test starts its own, on a loopback port.

mod calls;
mod conformance;
mod exact;
mod rows;
mod settled;
mod support;
mod vanished;
