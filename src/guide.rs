//! A page for each topic: start with [your first limit](first_limit).
//!
//! | topic | page |
//! | --- | --- |
//! | start | [your first limit](first_limit) |
//! | choose | [which algorithm](algorithms), [which key](keys), [what a policy can do](policies), [which layer when](which_layer) |
//! | put it in place | [behind a proxy](proxies), [the order of layers](order), [responses], [limits without HTTP](limiter) |
//! | run it | [Redis in production](redis), [when Redis is away](outages), [many processes](many_processes), [metrics], [troubleshooting] |
//! | look it up | [normal forms of keys](names), [what a request owes](accounts) |
//! | test it | [testing](https://docs.rs/tollgate-test/latest/tollgate_test/testing/) and [writing a store](https://docs.rs/tollgate-test/latest/tollgate_test/writing_a_store/), of the crate `tollgate-test` |
//!
//! The pages are documentation, and have no items. They are those of `docs/` in the repository.

/// A limit by address, then by user, then over Redis; and a look at what applies.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/first-limit.md")]
pub mod first_limit {}

/// Each algorithm with its bursts, its accuracy and what it keeps in Redis.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/algorithms.md")]
pub mod algorithms {}

/// What requests are counted by, and what clients can do about it.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/keys.md")]
pub mod keys {}

/// The normal form of each key, when it is ambiguous, and its text.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/names.md")]
pub mod names {}

/// The client's address behind load balancers.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/proxies.md")]
pub mod proxies {}

/// Tiers, costs, refunds, bans, lists, shadow mode, files, and changes while it serves.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/policies.md")]
pub mod policies {}

/// What each event charges or refunds.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/accounts.md")]
pub mod accounts {}

/// Headers, problem documents, refused uploads, the status route and gRPC.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/responses.md")]
pub mod responses {}

/// Where the layer belongs among tracing, CORS, compression, timeouts and authentication.
///
#[doc = include_str!("../docs/guide-links.md")]
// Its code is compiled as an example.
#[cfg_attr(not(doctest), doc = include_str!("../docs/order.md"))]
pub mod order {}

/// Limit, shed or wait; which store; one layer or several.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/which-layer.md")]
pub mod which_layer {}

/// Decisions about jobs and messages.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/limiter.md")]
pub mod limiter {}

/// Prefixes, users, TLS, Cluster, Sentinel, memory and connections.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}

/// What decides during an outage, how long a request waits, and the circuit breaker.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/outages.md")]
pub mod outages {}

/// Leases for hot keys, drop ratios for large fleets, and limits over several regions.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/many-processes.md")]
pub mod many_processes {}

/// Each metric with the values of its labels, and what to alert on.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}

/// What warnings mean, all codes of the log, errors of a layer that is built, and what no warning can show.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/troubleshooting.md")]
pub mod troubleshooting {}
