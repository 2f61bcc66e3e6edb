//! Rate limiting for Tower and axum: several limits in one atomic decision, in memory or in Redis.
//!
//! A [`RateLimitLayer`] wraps any `tower::Service` over HTTP. For each request it extracts keys and gets one decision over all
//! policies from a store. Then it either calls the inner service, or responds with 429 itself. Both responses have headers that
//! tell the client what is left and when to retry.
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
//! Serve it with `app.into_make_service_with_connect_info::<SocketAddr>()`, from which `client_ip` has the address. The
//! [`guide`] goes on from here: [your first limit](guide::first_limit), [which key](guide::keys), [behind a
//! proxy](guide::proxies), [Redis in production](guide::redis), and [why a limit does not apply](guide::troubleshooting).
//!
//! # Overview
//!
//! - A [`Policy`] is a named limit: a [`Quota`] (an algorithm, a **limit** in units, a **window**), a [`key`] that identifies the
//!   client, and options. A request has a **cost**, 1 unit by default.
//! - A [`Store`](store::Store) keeps the counters and makes the [`Decision`]: [`MemoryStore`] for one process, [`RedisStore`] for
//!   many. [`LeaseStore`](store::LeaseStore) and [`DenyCache`](store::DenyCache) wrap a store to save calls.
//! - [`OnFailure`] selects what decides when the store fails, and a [circuit breaker](store::BreakerState) keeps requests from
//!   waiting for it.
//! - Handlers find a [`RateLimitHandle`] in the extensions of the request: it has the [`Decision`], charges and refunds units, and
//!   checks further policies. In axum a handler takes either as an argument.
//! - A [`LiveLayer`] changes policies while they serve, and [explains](LiveLayer::explain) what they make of a request.
//! - A [`Limiter`] decides by [`Rule`]s without HTTP, for jobs and messages.
//! - Crates beside this one: `tollgate-config` (policies from a file), `tollgate-shed` (load shedding, back-pressure),
//!   `tollgate-bandwidth` (bytes of bodies), `tollgate-ratio` (no call for a request), `tollgate-sql` and `tollgate-redis-cell`
//!   (other stores), `tollgate-test` (tests of your limits).
//!
//! # Guarantees
//!
//! - A denied request takes nothing from any policy. On a Redis Cluster, policies whose keys are in several slots are decided
//!   separately, and what some of them took is refunded; until then others may be denied these units.
//! - `Retry-After` is never 0, and a request that is retried after it is admitted, unless others took the units first. If the
//!   denial was cached, or was made before a lookup, it covers only the policies that are known to deny.
//! - Every decision takes bounded time: 100 ms, unless the layer or the store sets another timeout. If the store does not decide
//!   within it, a local store does, unless the layer sets another [`OnFailure`]. The local store counts separately, so more than
//!   the limit can be admitted then.
//! - Memory is bounded whatever clients send, and clients cannot choose a key in Redis.
//!
//! # Cancellation
//!
//! The future of a response can be dropped at any point. The inner service is called only after the request was admitted. Units
//! of an admitted request that is dropped stay taken, unless its policy has [`refund_dropped`](Policy::refund_dropped). Slots of
//! a [`Quota::concurrency`] are always released.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `axum` | yes | the keys [`key::client_ip`], [`key::peer_ip`], [`key::route`] and [`key::path_param`], with `client`, `ip`, `route` and `on_denied` of a layer (`on_denied_http` is without axum) and [`Policy::routes`]; the extractors [`Decision`] and [`RateLimitHandle`] |
//! | `tonic` | no | the peer's address from a tonic 0.14 server, for [`key::client_ip`] and [`key::peer_ip`] |
//! | `redis` | no | [`RedisStore`] |
//! | `cluster` | no | `RedisStore::connect_cluster`: a Redis Cluster |
//! | `sentinel` | no | `RedisStore::connect_sentinel`: the primary that Redis Sentinel names |
//! | `serde` | no | [`serde::Serialize`](https://docs.rs/serde) for [`Decision`], [`Outcome`], [`Explanation`](status::Explanation) and what they contain, for structured logs; `Deserialize` for [`Key`] and [`PolicyName`](policy::PolicyName) |
//! | `lookup` | no | keys and quotas that are looked up: [`key::lookup()`] and [`TierLookup`](policy::TierLookup) |
//! | `merge-headers` | yes | each member of `RateLimit` and `RateLimit-Policy` of inner services is checked before ours are added |
//! | `tls` | no | `rediss://` URLs for [`RedisStore`], by rustls and ring |
//! | `calendar` | no | [`Calendar`](policy::Calendar): fixed windows that are hours, days, weeks or months of a time zone |
//! | `metrics` | no | [metrics](guide::metrics) for operators |
//! | `test-util` | no | `test_util`: a clock and a store that fails, for tests of your own limits |

// docs.rs shows at each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features their items are named and not there.
#![cfg_attr(
    not(all(feature = "redis", feature = "lookup", feature = "calendar")),
    allow(rustdoc::broken_intra_doc_links)
)]

mod core;
// Its code uses these features.
#[cfg(any(
    not(doctest),
    all(feature = "axum", feature = "calendar", feature = "cluster", feature = "lookup", feature = "sentinel")
))]
pub mod guide;
mod http;
mod limiter;
pub mod store;
mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;

/// The version whose types [`RedisStore::from_pool`] and [`RedisStore::command`] take: `deadpool_redis::redis` is its redis.
/// A new major version of it is a new one of this crate.
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

/// The body, the future and the errors of a service that a [`RateLimitLayer`] wraps.
pub mod body {
    pub use crate::http::{BodyError, ResponseBody, ResponseFuture};
}

/// What a [`Policy`] is made of, besides a [`Quota`] and a [`key`].
pub mod policy {
    #[cfg(feature = "calendar")]
    pub use crate::core::Calendar;
    pub use crate::core::{Algorithm, PolicyName};
    pub use crate::http::{AccessList, Count, MissingKey};
    #[cfg(feature = "lookup")]
    pub use crate::limiter::{TierLookup, UnknownTier};
}

/// What responses say: of a request that is denied, in headers, and of what the request cost; and responses of your own
/// layers.
pub mod response {
    pub use crate::http::{ActualCost, Denial, DenialReason, Draft, Drain, exposed_headers, unavailable};
}

/// What clients have left of their limits, and what policies make of a request.
pub mod status {
    pub use crate::http::{Explanation, PolicyExplanation, StatusService};
}

/// Compiles and runs the code in the readme, which uses these features.
#[cfg(all(doctest, feature = "axum", feature = "redis", feature = "lookup"))]
#[doc = include_str!("../README.md")]
struct Readme;
