//! Flows over a store: what passes, what is returned, what the store is called for, and what is counted.

mod audit;
mod bans;
mod histories;
mod lines;
#[cfg(feature = "metrics")]
mod metrics;
mod portions;
mod runtimes;
#[cfg(feature = "stream")]
mod streams;
mod support;
mod taking;
mod unavailable;
