//! Stores, which keep state and make decisions: the trait [`Store`] and its implementations.
//!
//! A store decides [`Check`]s: each has a counter, a cost and a floor. It returns one decision over all of them, with a
//! [`Receipt`] by which units can be refunded or charged later. Stores use counters, quotas and time. They know neither
//! HTTP nor anything of a policy but its name.
//!
//! | store | location of the counters | feature |
//! | --- | --- | --- |
//! | [`MemoryStore`] | in this process | |
//! | `RedisStore` | in Redis, or a Redis Cluster | `redis` |
//!
//! Other stores wrap one of these, or each other: [`DenyCache`] caches denials, and [`LeaseStore`] takes units in
//! advance for hot keys, or allows requests on an overdraft. A layer wraps its store once more, to decide when the
//! store fails: see [`OnFailure`].

// Several stores use the files directly in this folder: clocks (`clock`), deadlines (`ask`), decisions over all checks
// (`evaluate`), bans (`bans`), settlements item by item (`around`), and the circuit `breaker`.

mod around;
mod ask;
mod bans;
pub(crate) mod breaker;
mod clock;
mod deny;
mod evaluate;
pub(crate) mod failure;
mod lease;
mod map;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod share;
mod slots;
mod states;
mod traits;

pub use crate::core::{
    BanCheck, Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, ReceiptItem, Requirement, Settlement,
    Settles, Settling, StoreDecision, StoreId,
};
pub(crate) use ask::Deadline;
pub use ask::{Ask, AskMode};
pub use breaker::BreakerState;
pub use clock::Clock;
pub(crate) use clock::SystemClock;
pub use deny::{DenyCache, DenyCacheBuilder};
pub(crate) use failure::{Call, Deciding, FailureRules, FailureStore, OnFailure, SharedStore};
pub use lease::{LeaseCounts, LeaseStore, LeaseStoreBuilder};
pub(crate) use memory::MemoryStore;
pub use memory::MemoryStoreBuilder;
#[cfg(feature = "redis")]
pub use redis::{Credentials, RedisStoreBuilder};
pub use slots::SlotGuard;
pub(crate) use slots::WeakSlots;
pub use states::{Evaluation, StateId, StateWrite};
pub use traits::{Capabilities, Store};
