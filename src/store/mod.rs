//! Where state lives and decisions are made.

mod around;
pub(crate) mod breaker;
#[cfg(feature = "redis-cell")]
mod cell;
mod clock;
mod deadline;
mod deny;
mod evaluate;
mod failure;
mod found;
mod hybrid;
mod lease;
mod map;
mod memory;
mod outage;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod traits;

pub use crate::core::{
    Answer, Applied, Change, Check, Counter, Decided, Mode, Receipt, Requirement, Settlement, Settles, Settling,
    StoreId, Taken,
};
pub use breaker::BreakerState;
#[cfg(feature = "redis-cell")]
pub use cell::{RedisCellStore, RedisCellStoreBuilder};
pub use clock::{Clock, SystemClock};
pub use deadline::Deadline;
pub use deny::{DenyCache, DenyCacheBuilder};
pub use failure::OnFailure;
pub(crate) use failure::{FailureRules, FailureStore, SharedStore};
pub use hybrid::{HybridStore, HybridStoreBuilder};
pub use lease::{LeaseCounts, LeaseStore, LeaseStoreBuilder};
pub use memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "redis")]
pub use redis::{Credentials, RedisStore, RedisStoreBuilder};
pub use traits::Store;
