//! The tower service: what it does with a request, the future of its response, and the body of that response.
//!
//! A request comes in, and its head is checked. If it is admitted, the inner service is called, its response gets the
//! headers of the limits, and what the request took is settled; if not, the response is this crate's, and the inner
//! service is never called.
//!
//! Two things are easy to get wrong and are held here: the instance of the inner service that was polled ready is the
//! one that is called, and dropping a future or a body at any point leaves no slot taken and no account open.

mod body;
mod ending;
mod future;
mod rate_limit;

pub use self::body::{BodyError, ResponseBody};
pub use self::future::ResponseFuture;
pub use self::rate_limit::RateLimit;
