//! A fleet of processes that limit together by ratios, on simulated time.
//!
//! Each process is a real `RatioStore`; all report to one `MemoryTally`, through a network that delays and loses by a
//! seed. Nothing listens and nothing waits.

pub mod cases;
pub mod charts;
pub mod faulty;
pub mod fleet;
pub mod load;
pub mod measure;
pub mod table;
