//! Flows over a store: what passes, what is returned, and what the store is called for.

mod audit;
mod bans;
mod histories;
mod lines;
mod portions;
mod runtimes;
#[cfg(feature = "stream")]
mod streams;
mod taking;
mod unavailable;
