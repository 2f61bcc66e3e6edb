//! Coming back to Redis by itself, and leaving nothing behind.

mod clients;
mod closures;
mod dial;
mod far;
mod leaks;
mod passwords;
mod rig;
mod silence;
