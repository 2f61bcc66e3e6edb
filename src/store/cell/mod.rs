//! The store on redis-cell: token buckets that a Redis module keeps.
//!
//! Checks come in, one a request; decisions go out, each made by one `CL.THROTTLE`. It sends its commands by a
//! `RedisStore`, and has no queue, no script and no state of its own.

mod store;
mod throttle;

pub use store::{RedisCellStore, RedisCellStoreBuilder};
