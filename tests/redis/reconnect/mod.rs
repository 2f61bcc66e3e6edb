//! Coming back to Redis by itself, and leaving nothing behind.

mod closures;
mod dial;
mod leaks;
mod passwords;
mod rig;
mod silence;
