//! What is decided, and by which arithmetic: no HTTP, no runtime, no store.
//!
//! A [`Check`] asks whether units may be taken from a [`Counter`], which is a key's under a quota. An algorithm
//! answers from the counter's state and the time, a [`Decision`] is the answer to all checks of a request, and a
//! [`Receipt`] says what they took, so that it can be [changed](Change).

pub(crate) mod algorithm;
mod answer;
pub(crate) mod call;
mod change;
mod check;
pub(crate) mod decision;
pub(crate) mod error;
mod key;
mod name;
pub(crate) mod quota;
mod receipt;
mod requirement;

pub use algorithm::Algorithm;
pub use answer::{Answer, Settling};
pub use change::Change;
pub use check::{Check, Counter, Mode, Settles};
pub(crate) use check::{Checks, kept};
pub use decision::{Decision, Outcome, Source};
pub use error::Error;
pub use key::Key;
pub(crate) use key::Kind;
pub use name::PolicyName;
pub use quota::Quota;
pub use receipt::{Applied, Decided, Receipt, Settlement, StoreId, Taken};
pub use requirement::Requirement;
