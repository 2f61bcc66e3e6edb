//! Units admitted first and charged later, for processes far from their store.
//!
//! The checks of a request come in. If this process may still admit their units, an admitted decision goes out at
//! once and the units are a debt; a task charges them at the next tick, and looks at what remains, which is how much
//! may be admitted until the next look. Everything else is decided by the inner store, after the debts of its
//! keys have been charged.
//!
//! A key's balance goes through these states:
//!
//! | state | admits here | ends |
//! | --- | --- | --- |
//! | unknown | nothing | with a decision or a look of the inner store: `update` |
//! | known | `room` units, while the last look is fresh (10 ticks) | with `enter` or `shut`, or when it is stale |
//! | direct | nothing, as the inner store is deciding | with `leave`, of the last of several |
//!
//! | file | what it has |
//! | --- | --- |
//! | `store` | [`HybridStore`] and its builder |
//! | `shared` | what clones share: the balances, the inner store, the runtime |
//! | `admit` | a request that is admitted here |
//! | `direct` | a request that the inner store decides |
//! | `change`, `under_way` | refunds, charges and resets; those on their way |
//! | `charge`, `ticking` | charging debts: at once, and at each tick |
//! | `balances`, `balance` | the map; what is left of a key |
//! | `ledger`, `epoch` | the debt, by charges; stamps that do not outlive a reset |
//!
//! Invariants: of a key, the debt and what may still be admitted together never exceed the allowance; no unit is
//! sent in more than two charges; and no lock is held while the inner store is called or a task is started.

mod admit;
mod balance;
mod balances;
mod change;
mod charge;
mod direct;
mod epoch;
mod ledger;
mod shared;
mod store;
mod ticking;
mod under_way;

pub use store::{HybridStore, HybridStoreBuilder};
