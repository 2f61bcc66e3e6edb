#![doc = include_str!("../README.md")]

mod store;
mod throttle;

pub use store::RedisCellStore;
