//! Headers of the limits: their settings, values, and merging with headers of inner layers.
//!
//! A decision is written as `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*` to the headers of a response.
//! [`settings`] is what users choose, [`fields`] has the formulas and the syntax, and [`merge`] keeps what an inner
//! layer or an upstream wrote.
//!
//! Clients see enforced and advertised policies only, and no header promises more than the limits allow: waits are
//! rounded up, and merging only makes a header stricter.

mod fields;
mod merge;
mod settings;
mod write;

pub(crate) use self::fields::{Advertised, MAX_INTEGER, number, used, whole_seconds};
pub use self::settings::{Draft, RateLimitHeaders};
pub use self::write::exposed_headers;
pub(crate) use self::write::{HeaderWriter, NO_STORE, PROBLEM};
