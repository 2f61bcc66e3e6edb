//! One client, one counter, whatever it writes: requests of random spellings, read by what applications use
//! and by the keys beside it.
//!
//! `SEED` repeats a run.

mod check;
mod random;
mod wire;
