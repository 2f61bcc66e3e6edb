//! What a layer looks up for itself: shielded, by the raw value, and in bounded time.

mod flights;
mod looks;
mod raw;
mod rig;
mod shield;
mod stale;
mod tiers;
mod timeouts;
mod unknown;
