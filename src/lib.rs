//! Rate limiting for Tower and axum: several limits in one atomic decision, in memory or in Redis.
//!
//! A [`RateLimitLayer`] wraps any `tower::Service` over HTTP. For each request it extracts the keys of its policies and gets one
//! decision over all of them from a store. It then calls the inner service, or responds with 429 itself. The headers of both
//! responses contain the units left, and a 429 also has `Retry-After`.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
//!
//! let policy = Policy::new("api", Quota::per_minute(100)).key(key::client_ip());
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
//! # let _ = app;
//! ```
//!
//! Serve the app with `app.into_make_service_with_connect_info::<SocketAddr>()`, so that `client_ip` knows the peer's address.
//!
//! The [`guide`] has a page for each topic: [your first limit](guide::first_limit), [which key](guide::keys), [behind a
//! proxy](guide::proxies), [Redis in production](guide::redis), and [why a limit does not apply](guide::troubleshooting).
//!
//! # Overview
//!
//! - A [`Policy`] is a named limit: a [`Quota`] (an algorithm, a **limit** in units, and a **window**), a [`key`] that identifies
//!   the client, and options. A request has a **cost**, 1 unit by default.
//! - A [`Store`](store::Store) keeps the counters and makes each [`Decision`]. Use [`MemoryStore`] in one process, and
//!   [`RedisStore`] in several. [`LeaseStore`](store::LeaseStore) and [`DenyCache`](store::DenyCache) wrap a store to save calls.
//! - [`OnFailure`] sets what decides while the store is unavailable. A [circuit breaker](store::BreakerState) keeps requests from
//!   waiting for a failed store.
//! - A [`RateLimitHandle`] in the extensions of each request gives handlers the [`Decision`]. With it they charge and refund
//!   units, and check further policies. An axum handler takes either type as an argument.
//! - A [`LiveLayer`] replaces policies while the service runs, and [explains](LiveLayer::explain) their effect on a request.
//! - A [`Limiter`] decides by [`Rule`]s without HTTP, for jobs and messages.
//! - Related crates: `tollgate-config` (policies from a file), `tollgate-admin` (overrides for a fleet), `tollgate-client` (a
//!   client that obeys limits), `tollgate-shed` (load shedding, back-pressure), `tollgate-bandwidth` (bytes of bodies),
//!   `tollgate-ratio` (limits without a call per request), `tollgate-sql` and `tollgate-redis-cell` (other stores),
//!   `tollgate-test` (tests of your limits).
//!
//! # Guarantees
//!
//! - A denied request takes nothing from any policy. On a Redis Cluster, policies with keys in different slots are decided
//!   separately, and units that some of them took are refunded. Until the refund, other requests may be denied these units.
//! - `Retry-After` is never 0, and a request that is retried after it is allowed, unless other requests took the units first. For
//!   a concurrency it is a guess of 1 s. If the denial was cached, or was made before a lookup, it covers only the policies that
//!   are known to deny.
//! - Every decision takes bounded time: 100 ms, unless the layer or the store sets another timeout. Two waits are not part of it:
//!   for a lookup without a cached result, at most 1 s by default and a timeout more, and for a turn in the queue of a leaky bucket. If the store does
//!   not decide in time, a local store does, unless the layer sets another [`OnFailure`]. The local store counts separately, so
//!   more than the limit can be allowed then.
//! - Memory is bounded whatever clients send, and clients cannot choose a key in Redis.
//!
//! # Cancellation
//!
//! The future of a response can be dropped at any point. The inner service is called only after the request was allowed. If an
//! allowed request is dropped, its units stay taken, unless its policy has [`refund_dropped`](Policy::refund_dropped). Slots of
//! a [`Quota::concurrency`] are always released.
//!
//! # Runtimes and platforms
//!
//! A layer with a [`MemoryStore`] needs no runtime, except for what waits: a queue of a leaky bucket, a lookup, and
//! [`Limiter::until_ready`] sleep by Tokio's timers, and panic outside of its runtimes. A [`RedisStore`] is connected on a Tokio
//! runtime, and then also decides for threads outside of it.
//!
//! The tests run on Linux, part of them also with 32 bits. The crate compiles for macOS and Windows, where no test ran, and
//! without default features for `wasm32-wasip1`. `wasm32-unknown-unknown` has no clock, which is an error of the compiler.
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `axum` | yes | the keys [`key::client_ip`], [`key::peer_ip`], [`key::route`] and [`key::path_param`]; the methods `client`, `ip`, `route` and `on_denied` of a layer (`on_denied_http` needs no axum) and [`Policy::routes`]; [`Decision`] and [`RateLimitHandle`] as extractors |
//! | `tonic` | no | the peer's address from a tonic 0.14 server, for [`key::client_ip`] and [`key::peer_ip`]; enables `axum` |
//! | `redis` | no | [`RedisStore`] |
//! | `cluster` | no | `RedisStore::connect_cluster` for a Redis Cluster; enables `redis` |
//! | `sentinel` | no | `RedisStore::connect_sentinel` for a primary behind Redis Sentinel; enables `redis` |
//! | `serde` | no | [`serde::Serialize`](https://docs.rs/serde) for [`Decision`], [`Outcome`], [`Explanation`](status::Explanation) and what they contain, for structured logs; `Deserialize` for [`Key`] and [`PolicyName`](policy::PolicyName) |
//! | `lookup` | no | [`key::lookup()`] and [`TierLookup`](policy::TierLookup): keys and quotas from an async function, with cached results |
//! | `merge-headers` | yes | checks each member of `RateLimit` and `RateLimit-Policy` of inner services before adding our own; without it, only the beginning of a line is checked |
//! | `tls` | no | `rediss://` URLs for [`RedisStore`], with rustls and ring; enables `redis` |
//! | `calendar` | no | [`Calendar`](policy::Calendar): fixed windows of an hour, day, week or month in a time zone |
//! | `metrics` | no | [metrics](guide::metrics) for operators |
//! | `test-util` | no | `test_util`: a manual clock and a store that fails, for tests; only for `dev-dependencies` |

// docs.rs shows at each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features their items are named and not there.
#![cfg_attr(
    not(all(feature = "redis", feature = "lookup", feature = "calendar")),
    allow(rustdoc::broken_intra_doc_links)
)]

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
compile_error!("this platform has no clock: tollgate compiles for wasm32-wasip1");

mod core;
// Its code uses these features.
#[cfg(any(
    not(doctest),
    all(
        feature = "axum",
        feature = "calendar",
        feature = "cluster",
        feature = "lookup",
        feature = "sentinel",
        feature = "test-util"
    )
))]
#[cfg_attr(docsrs, doc(auto_cfg = false))]
pub mod guide;
mod http;
mod limiter;
pub mod store;
mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;

/// The version of `deadpool-redis` whose types [`RedisStore::from_pool`] and [`RedisStore::command`] take. Its redis crate is
/// `deadpool_redis::redis`. A new major version of `deadpool-redis` is a new major version of this crate.
#[cfg(feature = "redis")]
pub use deadpool_redis;

pub use self::core::{Ban, Decision, Error, Key, Outcome, Quota, Source};
pub use self::http::{LiveLayer, Policy, RateLimit, RateLimitHandle, RateLimitHeaders, RateLimitLayer, key};
pub use self::limiter::{Counters, Limiter, Permit, Rule};
pub use self::store::failure::OnFailure;
pub use self::store::memory::MemoryStore;
// Not there without its feature, so that the compiler names the feature.
#[cfg(feature = "redis")]
pub use self::store::redis::RedisStore;

/// Body, future and error types of services that a [`RateLimitLayer`] wraps.
pub mod body {
    pub use crate::http::{BodyError, ResponseBody, ResponseFuture};
}

/// Changes of limits by operators, while a layer or limiter serves.
pub mod overrides {
    pub use crate::limiter::{Effect, Override, Overrides};
}

/// Parts of a [`Policy`] other than its [`Quota`] and its [`key`].
pub mod policy {
    #[cfg(feature = "calendar")]
    pub use crate::core::Calendar;
    pub use crate::core::{Algorithm, PolicyName};
    pub use crate::http::{AccessList, Count, MissingKey};
    #[cfg(feature = "lookup")]
    pub use crate::limiter::{TierLookup, UnknownTier};
}

/// Denials, headers and real costs of responses, and building blocks for responses of your own layers.
pub mod response {
    pub use crate::http::{ActualCost, Denial, DenialReason, Draft, Drain, exposed_headers, unavailable};
}

/// Remaining units of clients, and the effect of policies on a request.
pub mod status {
    pub use crate::http::{Explanation, LogKeys, PolicyExplanation, StatusService};
}

/// Compiles and runs the code in the readme, which uses these features.
#[cfg(all(doctest, feature = "axum", feature = "redis", feature = "lookup"))]
#[doc = include_str!("../README.md")]
struct Readme;
