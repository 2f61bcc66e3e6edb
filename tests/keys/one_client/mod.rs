//! One client, one counter, whatever it writes: requests of random spellings, read by what applications use
//! and by the keys beside it.
//!
//! `SEED` repeats a run; `REQUESTS` and `SOCKET_REQUESTS` make another number of requests of each kind.

mod check;
mod random;
mod wire;
