//! A fleet of processes that limit together by ratios, on simulated time.
//!
//! Each process is a real `RatioStore`; all report to one `MemoryTally`, through a network that delays, and loses, what a
//! seed says. Nothing listens and nothing waits: a run of 30 s with 10,000 processes takes seconds.

pub mod cases;
pub mod charts;
pub mod faulty;
pub mod fleet;
pub mod load;
pub mod measure;
pub mod table;
