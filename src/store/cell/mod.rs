//! The store on redis-cell: token buckets that a Redis module keeps.
//!
//! Checks come in, one a request; decisions go out, each made by one
//! `CL.THROTTLE`. The store is for servers that have the module already, or where scripts are not
//! allowed.
//!
//! - `rate.rs` translates a quota into the module's terms, and refuses what the module cannot
//!   count.
//! - `throttle.rs` writes the command and reads the reply.
//! - `store.rs` and `builder.rs` are the public store and its settings.
//!
//! It sends its commands by a `RedisStore`, and has no queue, no script and no state of its own.

mod builder;
mod rate;
mod store;
mod throttle;

pub use builder::RedisCellStoreBuilder;
pub use store::RedisCellStore;
