//! A page for each topic: start with [your first limit](first_limit).
//!
//! | topic | page |
//! | --- | --- |
//! | start | [your first limit](first_limit), [coming from another limiter](coming_from) |
//! | copy | [the cookbook](cookbook) |
//! | choose | [which algorithm](algorithms), [which key](keys), [what a policy can do](policies), [which layer when](which_layer) |
//! | add it to a service | [behind a proxy](proxies), [the order of layers](order), [responses], [limits without HTTP](limiter) |
//! | run it | [before production](checklist), [Redis in production](redis), [when Redis is unavailable](outages), [many processes](many_processes), [operating], [metrics], [OpenTelemetry](opentelemetry), [troubleshooting] |
//! | reference | [normal forms of keys](names), [charges and refunds](accounts) |
//! | test it | [testing](https://docs.rs/tollgate-test/latest/tollgate_test/testing/) and [writing a store](https://docs.rs/tollgate-test/latest/tollgate_test/writing_a_store/), in the crate `tollgate-test` |
//!
//! The pages have no items. Their source is `docs/` in the repository.

/// A limit by address, a second one by user, both in Redis, and how to see which limits apply.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/first-limit.md")]
pub mod first_limit {}

/// Settings of governor, `tower_governor`, express-rate-limit, nginx and others, and what becomes of them.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/coming-from.md")]
pub mod coming_from {}

/// Bursts, accuracy and Redis memory of each algorithm.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/algorithms.md")]
pub mod algorithms {}

/// The keys that requests are counted by, and how clients could evade each.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/keys.md")]
pub mod keys {}

/// The normal form of each key, ambiguous requests, and keys as text.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/names.md")]
pub mod names {}

/// Who is limited and why, and overrides of limits while the service runs.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

/// The client's address behind load balancers and other proxies.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/proxies.md")]
pub mod proxies {}

/// Conditions, tiers, costs, refunds, bans, lists, shadow mode, config files, and changes at runtime.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/policies.md")]
pub mod policies {}

/// The units that each event charges or refunds.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/accounts.md")]
pub mod accounts {}

/// Headers, problem documents, your own responses, uploads, the status route and gRPC.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/responses.md")]
pub mod responses {}

/// The place of the layer among tracing, CORS, compression, timeouts and authentication.
///
#[doc = include_str!("../docs/guide-links.md")]
// Its code is compiled as an example.
#[cfg_attr(not(doctest), doc = include_str!("../docs/order.md"))]
pub mod order {}

/// Limits, shedders and back-pressure, the choice of a store, and one layer or several.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/which-layer.md")]
pub mod which_layer {}

/// Limits for jobs and messages.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/limiter.md")]
pub mod limiter {}

/// Prefixes, users, TLS, Cluster, Sentinel, memory and connections.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}

/// A list to go through before a service goes live, with a check for each row, and what to set on managed servers.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/checklist.md")]
pub mod checklist {}

/// Decisions during an outage, timeouts, and the circuit breaker.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/outages.md")]
pub mod outages {}

/// Leases for hot keys, drop ratios for large fleets, and limits over several regions.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/many-processes.md")]
pub mod many_processes {}

/// Each metric with the values of its labels, and alerts.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}

/// Spans and metrics in an OpenTelemetry collector.
///
#[doc = include_str!("../docs/guide-links.md")]
// Its code is compiled as an example.
#[cfg_attr(not(doctest), doc = include_str!("../docs/opentelemetry.md"))]
pub mod opentelemetry {}

/// Warnings, log codes, errors when a layer is built, and mistakes without a warning.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/troubleshooting.md")]
pub mod troubleshooting {}

/// Short recipes for common services.
///
#[doc = include_str!("../docs/guide-links.md")]
#[doc = include_str!("../docs/cookbook/README.md")]
pub mod cookbook {
    /// Wrong passwords, by address and by account.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/login.md")]
    pub mod login {}

    /// Customers with several API keys, and quotas by plan.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/api-keys.md")]
    pub mod api_keys {}

    /// A limit by address for requests without a user, and one for each user.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/anonymous.md")]
    pub mod anonymous {}

    /// A limit of a tenant, and shares of its users.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/tenants.md")]
    pub mod tenants {}

    /// Tokens that a request reserves, and gets back.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/llm.md")]
    pub mod llm {}

    /// Points of queries, which are known in the handler.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/graphql.md")]
    pub mod graphql {}

    /// An allow list of networks, and routes without a limit.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/exceptions.md")]
    pub mod exceptions {}

    /// Sockets at once, and messages of users.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/websocket.md")]
    pub mod websocket {}

    /// Streams at once, which last for hours.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/events.md")]
    pub mod events {}

    /// Calls by method, of which only some count.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/grpc.md")]
    pub mod grpc {}

    /// Calls to others, which wait for their turn.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/webhooks.md")]
    pub mod webhooks {}

    /// A worker that starts jobs of many tenants.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/jobs.md")]
    pub mod jobs {}

    /// A page with a CAPTCHA instead of a denial.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/challenge.md")]
    pub mod challenge {}

    /// Clients behind a cache that they share.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/cdn.md")]
    pub mod cdn {}

    /// Retries that are not charged.
    ///
    #[doc = include_str!("../docs/guide-links.md")]
    #[doc = include_str!("../docs/cookbook/idempotency.md")]
    pub mod idempotency {}
}
