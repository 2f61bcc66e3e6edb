//! Back-pressure: services that are ready once a limiter has admitted the next call.
//!
//! A limiter and one key come in. A service is polled ready before there is a request, so there is nothing to extract a
//! key from: it is for loops of workers, which take their next job only when they may begin it. [`wait`] has the line
//! in which services stand, of which only the first calls the store.

mod service;
mod wait;

pub use self::service::{BackPressure, BackPressureFuture, BackPressureLayer};
