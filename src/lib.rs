//! Rate limiting for Tower and axum: several limits in one atomic decision, in memory or in Redis.
//!
//! A [`RateLimitLayer`] wraps any `tower::Service` over HTTP. For each request it extracts keys, asks
//! a store for one decision over all its policies, and either calls the inner service or answers
//! 429 itself, with headers that are true.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
//!
//! let policy = Policy::new("api", Quota::per_minute(100)).key(key::peer_ip());
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
//! # let _ = app;
//! ```
//!
//! # Words
//!
//! A **policy** is a named rule: a **quota** (how much: an algorithm, a **limit** in units, a
//! **window**), a **key** (who is counted), and options. A request has a **cost** in units. A
//! **store** keeps the state and makes **decisions**: [`MemoryStore`] for one process,
//! [`RedisStore`] for many.
//!
//! # Guarantees
//!
//! - A request refused by one policy costs nothing on the others, and nothing on the one that
//!   refuses it. On a Redis Cluster, where keys are on several servers, what the others took is
//!   given back.
//! - `Retry-After` is true: wait that long and, nobody else competing, the request is served. It is
//!   never `0`.
//! - Every decision is bounded in time. When Redis is away, a local store decides
//!   ([`OnFailure::Fallback`]), unless the layer says otherwise; requests do not wait for Redis then.
//! - Nothing a client sends grows memory without bound or chooses a key in Redis.
//!
//! # Cancellation
//!
//! The future of a response can be dropped at any point. The inner service is called only after a
//! request was admitted; units of an admitted request that is dropped stay taken.
//!
//! # Metrics
//!
//! Clients are not told who decided. Your code is, by [`Decision::source`]; operators are by what is logged
//! with `tracing`, and, with the feature `metrics`, by what goes to a recorder of the
//! [`metrics`](https://docs.rs/metrics) crate. Install it before the first request. Labels are names of
//! policies and words of this crate, never anything of a request.
//!
//! | metric | type | labels |
//! | --- | --- | --- |
//! | `tollgate_decisions_total` | counter | `source`, `verdict` |
//! | `tollgate_decision_seconds` | histogram | `source` |
//! | `tollgate_policy_refusals_total` | counter | `policy`, `mode` |
//! | `tollgate_ambiguous_keys_total` | counter | `policy` |
//! | `tollgate_store_failures_total` | counter | `kind` |
//! | `tollgate_breakers_open` | gauge | |
//! | `tollgate_breaker_changes_total` | counter | `to` |
//!
//! `docs/metrics.md` in the package has their values, and what to alert on.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `axum` | yes | the keys [`key::client_ip`], [`key::peer_ip`], [`key::route`] and [`key::path_param`] |
//! | `redis` | yes | [`RedisStore`] |
//! | `cluster` | yes | `RedisStore::connect_cluster`: a Redis Cluster |
//! | `sentinel` | no | `RedisStore::connect_sentinel`: the primary that Redis Sentinel names |
//! | `redis-cell` | no | `RedisCellStore`: token buckets that the Redis module redis-cell keeps |
//! | `config` | yes | policies from a TOML file: [`config`] |
//! | `metrics` | no | [metrics](#metrics) for operators |
//! | `tls` | no | `rediss://` URLs for [`RedisStore`], by rustls and ring |

// Tests that are shared with those in `tests/` call the crate by its name.
#[cfg(test)]
extern crate self as tollgate;

#[cfg(feature = "config")]
pub mod config;
mod core;
mod http;
mod limiter;
mod lookup;
mod metrics;
pub mod store;

#[cfg(feature = "redis")]
pub use deadpool_redis;
pub use ipnet;

pub use self::core::{Algorithm, Decision, Error, Key, Outcome, PolicyName, Quota, Source};
pub use self::http::{
    AccessList, Count, Dialect, EXPOSED_HEADERS, Handle, Headers, MissingKey, Policy, RateLimit, RateLimitLayer,
    RealCost, ResponseBody, ResponseFuture, StatusService, key,
};
pub use limiter::{Limiter, Rule, TierLookup};
pub use lookup::{Lookup, RawValues};
#[cfg(feature = "redis-cell")]
pub use store::RedisCellStore;
#[cfg(feature = "redis")]
pub use store::RedisStore;
pub use store::{BreakerState, DenyCache, HybridStore, LeaseStore, MemoryStore, OnFailure, Store};

/// The code in the readme is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
