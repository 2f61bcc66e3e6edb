//! Tower service, the future of its response, and the body of that response.
//!
//! If a request is allowed, the inner service is called, its response gets the headers of the limits, and the account
//! of the request is settled. Otherwise this crate responds, and the inner service is never called.
//!
//! Two invariants are easy to break: the instance of the inner service that was polled ready is the one that is called,
//! and dropping a future or a body at any point leaves no slot taken and no account open.

mod body;
mod ending;
mod future;
mod rate_limit;

pub use self::body::{BodyError, ResponseBody};
pub use self::future::ResponseFuture;
pub use self::rate_limit::RateLimit;
