//! Rate limiting for Tower and axum: several limits in one atomic decision, in memory or in Redis.
//!
//! A [`RateLimitLayer`] wraps any `tower::Service` over HTTP. For each request it extracts keys and has a store decide
//! over all policies at once; then it either calls the inner service, or responds with 429 itself. Both responses have
//! headers that tell the client what is left and when to retry.
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
//! `peer_ip` needs the address of the connection: serve the app with
//! `app.into_make_service_with_connect_info::<SocketAddr>()`. Without it all clients share one counter. Behind a proxy,
//! give [`RateLimitLayer::client`] the proxies that are trusted, and count by [`key::client_ip`].
//!
//! Choose the key of each policy: without one, all requests share one counter; by a key that requests may lack, such as
//! [`key::header`], the policy does not limit those that lack it, unless [`Policy::missing_key`] refuses them. A policy
//! by address beside it limits these. [`LiveLayer::explain`] shows what each policy makes of a request.
//!
//! To share limits among processes, use a [`RedisStore`] (feature `redis`). All policies of a layer are decided together:
//!
#![cfg_attr(feature = "redis", doc = "```no_run")]
#![cfg_attr(not(feature = "redis"), doc = "```ignore")]
//! use tollgate::{Quota, RateLimitLayer, RedisStore, key};
//!
//! # async fn run() -> Result<(), tollgate::Error> {
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! let layer = RateLimitLayer::composite(store)
//!     .ip(Quota::per_minute(300))
//!     .user(Quota::per_hour(5_000).burst(200), key::header("x-api-key"));
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # Overview
//!
//! - A [`Policy`] is a named limit: a [`Quota`] (an algorithm, a **limit** in units, a **window**), a [`key`] that
//!   identifies the client, and options. A request has a **cost**, 1 unit by default.
//! - A [`Store`](store::Store) keeps the counters and makes the [`Decision`]: [`MemoryStore`] for one process, [`RedisStore`] for
//!   many. A store can be wrapped to save calls: in a [`LeaseStore`](store::LeaseStore) for hot keys, with an
//!   [overdraft](store::LeaseStore#overdraft) for distant regions, and in a [`DenyCache`](store::DenyCache) for refused requests. A `RedisStore`
//!   has a deny cache built in.
//! - [`OnFailure`] selects what decides when the store fails, and a [circuit breaker](store::BreakerState) keeps requests from
//!   waiting for it.
//! - Handlers find a [`RateLimitHandle`] in the extensions of the request: it has the [`Decision`], charges and refunds units, and
//!   checks further policies. In axum a handler takes either as an argument.
//! - The `BandwidthLayer` of the crate `tollgate-bandwidth` paces or cuts the bodies of responses or requests, by the bytes
//!   that pass; a `Flow` of it limits what passes unit by unit.
//! - A [`Limiter`] decides by [`Rule`]s without HTTP, for jobs and messages. The [`Counters`] of a key give
//!   permits for any number of units, which refund what is not spent.
//! - When there is too much load, the load shedders of the crate `tollgate-shed` refuse less important requests, and never
//!   critical ones; its `BackPressureLayer` makes services wait for a limiter.
//! - The [`guide`] has [all codes of the log](guide::troubleshooting) and [all metrics](guide::metrics), and what to do
//!   about them.
//!
//! # Guarantees
//!
//! - A refused request takes nothing from any policy. On a Redis Cluster, policies whose keys are in several slots are
//!   decided separately, and what some of them took is refunded; until then others may be refused these units.
//! - `Retry-After` is never 0, and a request that is retried after it is admitted, unless others took the units first.
//!   If the refusal was cached, or was made before a lookup, it covers only the policies that are known to refuse.
//! - Every decision takes bounded time: 100 ms, unless the layer or the store sets another budget. If the store does
//!   not decide within it, a local store does, unless the layer sets another [`OnFailure`]. The local store counts
//!   separately, so more than the limit can be admitted then.
//! - Memory is bounded whatever clients send, and clients cannot choose a key in Redis.
//!
//! # Cancellation
//!
//! The future of a response can be dropped at any point. The inner service is called only after the request was
//! admitted. Units of an admitted request that is dropped stay taken, unless its policy has
//! [`refund_dropped`](Policy::refund_dropped). Slots of a [`Quota::concurrency`] are always released.
//!
//! # Metrics
//!
//! Responses do not show what made a decision; [`Decision::source`] does. Operators see it in the log (`tracing`) and,
//! with the feature `metrics`, in what the crate records with the [`metrics`](https://docs.rs/metrics) crate. Install
//! the recorder before the first request. Labels are names of policies and constants of this crate, never data of a
//! request.
//!
//! | metric | type | labels |
//! | --- | --- | --- |
//! | `tollgate_decisions_total` | counter | `source`, `verdict` |
//! | `tollgate_decision_seconds` | histogram | `source` |
//! | `tollgate_policy_refusals_total` | counter | `policy`, `mode` |
//! | `tollgate_bans_total` | counter | `policy`, `mode` |
//! | `tollgate_ban_refusals_total` | counter | `policy`, `mode` |
//! | `tollgate_ambiguous_keys_total` | counter | `policy` |
//! | `tollgate_unknown_tiers_total` | counter | `policy` |
//! | `tollgate_policies_skipped_total` | counter | `policy`, `reason` |
//! | `tollgate_store_failures_total` | counter | `kind` |
//! | `tollgate_breakers_open` | gauge | |
//! | `tollgate_breaker_changes_total` | counter | `to` |
//! | `tollgate_slots_held` | gauge | |
//! | `tollgate_slots_lost_total` | counter | |
//!
//! The [guide](guide::metrics) lists the values of the labels, and what to alert on.
//!
//! # Testing
//!
//! The crate [`tollgate-test`](https://docs.rs/tollgate-test) is for tests of your own limits: it sends requests through a layer,
//! and its page on [testing](https://docs.rs/tollgate-test/latest/tollgate_test/testing/) shows the tests that most services
//! want. With the feature `test-util`, which it enables, the module `test_util` has a manual clock and a store that fails.
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
//! | `metrics` | no | [metrics](#metrics) for operators |
//! | `test-util` | no | `test_util`: a clock and a store that fails, for tests of your own limits |

// docs.rs shows at each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features their items are named and not there.
#![cfg_attr(
    not(all(feature = "redis", feature = "lookup", feature = "calendar")),
    allow(rustdoc::broken_intra_doc_links)
)]

mod core;
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

/// Pages for operators. They are documentation, and have no items.
pub mod guide {
    /// Each metric with the values of its labels, and what to alert on.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/metrics.md"))]
    pub mod metrics {}

    /// What warnings mean, all codes of the log, errors of a layer that is built, and what no warning can show.
    ///
    /// [metrics]: crate::guide::metrics
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../docs/troubleshooting.md"))]
    pub mod troubleshooting {}
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
#[cfg(all(doctest, feature = "axum", feature = "calendar", feature = "sentinel", feature = "cluster"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the code in the page on regions.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/regions.md")]
struct Regions;

/// Compiles and runs the code in the page on warnings.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../docs/troubleshooting.md")]
struct Troubleshooting;
