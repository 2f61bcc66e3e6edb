//! The sides: what is served, and what it must reach.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tollgate::{LeaseStore, MemoryStore, Policy, Quota, RateLimitLayer, RedisStore, Store, key};

use super::peers;

/// The header a request is counted by.
pub(super) const HEADER: &str = "x-api-key";
const MANY: u32 = 100_000;
const FEW: u32 = 100;
/// Units an hour: so few that a key that was used stays in use during a run.
pub(super) const LIMIT: u32 = 1_000;
/// So many at once that no key comes near.
pub(super) const BURST: u32 = 1_000_000;
/// A limit no key comes near, and with units enough for leases.
const AMPLE: Quota = Quota::per_minute(1_000_000);
/// One that all requests together do not come near.
const AMPLE_ALONE: Quota = Quota::per_minute(30_000_000);
/// A limit that refuses nearly every request over a few keys.
const SCANT: Quota = Quota::per_minute(10);

/// Builds what a side serves, from the URL of its Redis.
pub(super) type Serve = fn(String) -> Pin<Box<dyn Future<Output = Router> + Send>>;

/// Builds something that is not part of this program, and answers where it is.
pub(super) type Build = fn() -> Result<PathBuf, String>;

/// Who serves a side.
#[derive(Clone, Copy)]
pub(super) enum Server {
    This(Serve),
    /// A program that takes the URL of its Redis, prints its port and ends with standard input.
    Other(Build),
}

pub(super) struct Side {
    /// On the command line.
    pub(super) name: &'static str,
    /// In the tables.
    pub(super) title: &'static str,
    pub(super) server: Server,
    pub(super) keys: u32,
    pub(super) redis: bool,
    /// What its Redis must load.
    pub(super) module: Option<Build>,
    /// Whether nearly all requests are refused, instead of none.
    pub(super) refused: bool,
    /// Whether it is measured over one connection too.
    pub(super) alone: bool,
    /// A header every response has, as a proof that the limit is in place.
    pub(super) proof: Option<&'static str>,
    pub(super) goal: Option<Goal>,
}

/// Bounds from the design.
pub(super) struct Goal {
    /// Requests/s over no limit.
    pub(super) must: f64,
    pub(super) stretch: f64,
    /// Calls to Redis for 100 requests.
    pub(super) calls_below: Option<f64>,
}

pub(super) fn all() -> Vec<Side> {
    let mut sides = vec![
        Side::new("none", "no limit", |_| Box::pin(async { plain() })),
        Side::new("memory", "tollgate, memory", |_| Box::pin(async { limited(MemoryStore::new(), roomy()) }))
            .proof("x-ratelimit-remaining")
            .goal(0.92, 1.0),
        Side::new("redis", "tollgate, Redis", |url| Box::pin(async { limited(connected(url).await, roomy()) }))
            .redis()
            .proof("x-ratelimit-remaining")
            .goal(0.54, 0.60),
        Side::new("flood", "tollgate, Redis, flood", |url| Box::pin(async { limited(connected(url).await, SCANT) }))
            .redis()
            .proof("x-ratelimit-remaining")
            .few_keys()
            .flooded()
            .goal(0.90, 1.0)
            .calls_below(1.0),
        Side::new("leases", "tollgate, Redis, leases", |url| {
            Box::pin(async { limited(LeaseStore::new(connected(url).await), AMPLE) })
        })
        .redis()
        .proof("x-ratelimit-remaining")
        .few_keys()
        .goal(0.88, 0.95)
        .calls_below(1.0),
        Side::new("hot", "tollgate, Redis, one hot key", |url| {
            Box::pin(async { limited(connected(url).await, AMPLE_ALONE) })
        })
        .redis()
        .proof("x-ratelimit-remaining")
        .one_key(),
        Side::new("hot-leases", "tollgate, Redis, one hot key, leases", |url| {
            Box::pin(async { limited(LeaseStore::new(connected(url).await), AMPLE_ALONE) })
        })
        .redis()
        .proof("x-ratelimit-remaining")
        .one_key(),
        Side::new("hot-flood", "tollgate, Redis, one hot key, flood", |url| {
            Box::pin(async { limited(connected(url).await, SCANT) })
        })
        .redis()
        .proof("x-ratelimit-remaining")
        .one_key()
        .flooded(),
        Side::new("functions", "tollgate, Redis, functions", |url| {
            Box::pin(async move {
                let store = RedisStore::builder().functions().connect(&url).await.expect("connected");
                limited(store, roomy())
            })
        })
        .redis()
        .proof("x-ratelimit-remaining"),
        Side::new("headers", "no limit, five constant headers", |_| Box::pin(async { with_headers() }))
            .proof("x-ratelimit-remaining"),
    ];
    sides.extend(peers::all());
    sides
}

/// A limit no key comes near, whose keys stay in use.
fn roomy() -> Quota {
    Quota::per_hour(LIMIT.into()).burst(BURST.into())
}

/// What every side serves.
pub(super) fn plain() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// No limit, but what a limit sends.
fn with_headers() -> Router {
    plain().layer(map_response(async |mut response: Response| {
        let headers = [
            ("ratelimit-policy", "\"api\";q=1000000;w=60"),
            ("ratelimit", "\"api\";r=999999;t=60"),
            ("x-ratelimit-limit", "1000000"),
            ("x-ratelimit-remaining", "999999"),
            ("x-ratelimit-reset", "1800000000"),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }))
}

/// With both header sets, and only a hash of the key kept: what the layer does by itself.
fn limited(store: impl Store, quota: Quota) -> Router {
    plain().layer(RateLimitLayer::new(store, Policy::new("api", quota).key(key::header(HEADER))))
}

async fn connected(url: String) -> RedisStore {
    RedisStore::connect(&url).await.expect("connected")
}

impl Side {
    pub(super) fn new(name: &'static str, title: &'static str, serve: Serve) -> Self {
        Self::served(name, title, Server::This(serve))
    }

    pub(super) fn program(name: &'static str, title: &'static str, build: Build) -> Self {
        Self::served(name, title, Server::Other(build))
    }

    fn served(name: &'static str, title: &'static str, server: Server) -> Self {
        Self {
            name,
            title,
            server,
            keys: MANY,
            redis: false,
            module: None,
            refused: false,
            alone: true,
            proof: None,
            goal: None,
        }
    }

    pub(super) fn redis(self) -> Self {
        Self { redis: true, ..self }
    }

    #[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "only a peer needs a module"))]
    pub(super) fn module(self, build: Build) -> Self {
        Self { module: Some(build), ..self }
    }

    pub(super) fn proof(self, header: &'static str) -> Self {
        Self { proof: Some(header), ..self }
    }

    fn few_keys(self) -> Self {
        Self { keys: FEW, ..self }
    }

    fn one_key(self) -> Self {
        Self { keys: 1, alone: false, ..self }
    }

    fn flooded(self) -> Self {
        Self { refused: true, alone: false, ..self }
    }

    fn goal(self, must: f64, stretch: f64) -> Self {
        Self { goal: Some(Goal { must, stretch, calls_below: None }), ..self }
    }

    fn calls_below(mut self, calls: f64) -> Self {
        self.goal.as_mut().expect("a goal is set before").calls_below = Some(calls);
        self
    }
}
