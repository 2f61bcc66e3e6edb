//! Policies from a TOML file.
//!
//! ```
//! use tollgate::config::Config;
//! use tollgate::{MemoryStore, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::Error> {
//! let config = Config::from_toml(
//!     r#"
//!     [[policy]]
//!     name = "search"
//!     key = ["header:x-api-key", "path"]
//!     limit = 30
//!     window = "60s"
//!     burst = 10
//!
//!     [server]
//!     on_failure = "deny"
//!     "#,
//! )?;
//! assert_eq!(config.policies()[0].quota().capacity(), 10);
//!
//! let on_failure = config.server().on_failure();
//! let layer = RateLimitLayer::composite(MemoryStore::new()).policies(config.into_policies()).on_failure(on_failure);
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # `[[policy]]`
//!
//! | field | what it holds | default |
//! | --- | --- | --- |
//! | `name` | a letter, then up to 63 letters, digits, `.`, `_` or `-`; unique in the file | required |
//! | `limit` | units per window, at least 1 | required |
//! | `window` | a duration: `"100ms"`, `"60s"`, `"1h 30m"`, `"30d"` | required |
//! | `key` | `"peer_ip"`, `"route"` (both need the feature `axum`), `"path"`, `"global"`, `"header:NAME"`, or a list of them that is counted as one | `"global"` |
//! | `algorithm` | `"fixed_window"`, `"sliding_log"`, `"sliding_window"`, `"token_bucket"`, `"gcra"` (the same) or `"leaky_bucket"` | `"token_bucket"` |
//! | `burst` | the capacity of a token bucket | the limit |
//! | `queue` | how many requests of a leaky bucket may wait for their turn | 0 |
//! | `cost` | units a request takes; 0 only looks | 1 |
//! | `missing_key` | `"skip"`, `"deny"` or `"share"`: see [`MissingKey`](crate::MissingKey) | the key's own |
//! | `advertise` | whether headers and bodies name the policy | `true` |
//!
//! # `[server]`
//!
//! | field | what it holds | default |
//! | --- | --- | --- |
//! | `on_failure` | `"fallback"`, `"allow"` or `"deny"`: see [`OnFailure`](crate::OnFailure) | `"fallback"` |
//! | `instances` | how many processes share the limits | 1 |
//!
//! Anything else in the file is an error that names the line.

mod document;
mod fault;
mod file;
mod keys;
mod policy;
mod server;

pub use file::Config;
pub use server::Server;
