//! The tower service: what it does with a request, the future of its response, and that response's body.

mod body;
mod ending;
mod future;
mod rate_limit;

pub use self::body::ResponseBody;
pub use self::future::ResponseFuture;
pub use self::rate_limit::RateLimit;
