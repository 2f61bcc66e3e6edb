//! Vocabulary of a decision and the arithmetic behind it, without HTTP, a runtime or a store.
//!
//! A [`Check`] is a request to take units from a [`Counter`], which counts one key under one quota. From the state of
//! the counter and the time, an algorithm computes whether the check fits. The [`Outcome`]s of all checks of a request
//! form its [`Decision`]. A [`Receipt`] proves which units they took, so that these can be [changed](Change) later.
//!
//! This module uses no other module of the crate: stores and the HTTP layer share its types, and the arithmetic can be
//! tested without either. All numbers are integers, in units of a quota or in its ticks.

pub(crate) mod algorithm;
mod answer;
mod ascii;
mod ban;
pub(crate) mod calendar;
pub(crate) mod call;
mod check;
pub(crate) mod decision;
mod digits;
pub(crate) mod error;
mod key;
mod limit;
mod lines;
mod name;
pub(crate) mod quota;
pub(crate) mod random;
mod receipt;
mod requirement;
#[cfg(feature = "serde")]
mod serialize;
mod settlement;

pub use algorithm::Algorithm;
pub use answer::{MaybeFuture, Settling};
pub use ban::Ban;
#[cfg_attr(not(feature = "calendar"), allow(unreachable_pub, reason = "the crate exports it with its feature"))]
pub use calendar::Calendar;
pub use check::{BanCheck, Check, Counter, Mode, Settles};
pub(crate) use check::{Checks, Overridden, kept};
pub use decision::{Decision, Outcome, Source};
pub(crate) use digits::{Backwards, Digits};
pub use error::Error;
pub use key::Key;
pub(crate) use key::KeyKind;
pub(crate) use limit::Limit;
pub(crate) use lines::{Lines, OutageLines};
pub use name::PolicyName;
pub use quota::Quota;
pub use receipt::{Receipt, ReceiptItem, StoreDecision, StoreId};
pub use requirement::Requirement;
pub(crate) use settlement::in_drop;
pub use settlement::{Change, ChangeResult, Settlement};
