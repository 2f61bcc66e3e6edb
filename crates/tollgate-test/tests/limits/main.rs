//! Requests through a layer, and stores for tests of limits.

mod send;
mod stores;
