//! The store on redis-cell: token buckets that a Redis module keeps.
//!
//! What comes in are checks, one a request; what goes out are decisions, each made by one
//! `CL.THROTTLE`. The store is for servers that have the module already, or where scripts are not
//! allowed.
//!
//! - `rate.rs` translates a quota into the module's terms, and refuses what the module cannot
//!   count.
//! - `throttle.rs` writes the command and reads the reply.
//! - `store.rs` and `builder.rs` are the public store and its settings.
//!
//! Of the Redis store it knows the public settings, and `plain`, which lends it connections; it has
//! no queue, no script and no state of its own.

mod builder;
mod rate;
mod store;
mod throttle;

pub use builder::RedisCellStoreBuilder;
pub use store::RedisCellStore;
