//! The sides.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use axum::Router;
use tollgate::MemoryStore;
use tollgate::store::LeaseStore;

use super::app::{
    AMPLE, AMPLE_ALONE, SCANT, bare, clustered, connected, hashed, limited, patient, plain, pooled, roomy,
    with_headers, with_legacy_headers, without_headers,
};
use super::peers;
use crate::versions::titled;
use crate::work::{Answers, BOTH, LEGACY, NO_HEADERS};

/// So many units at once that no key comes near.
pub(super) const BURST: u32 = 1_000_000;
/// So many that all requests together do not come near.
const BURST_ALONE: u32 = 30_000_000;

const MANY: u32 = 100_000;
const FEW: u32 = 100;

const REFUSED: &[&str] = &[
    "cache-control",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// What a side is served with.
pub(crate) struct Setup {
    /// Of its Redis, or those of the primaries of its Cluster, with commas between them.
    pub(super) url: String,
    /// Units that a client may take at once.
    pub(super) burst: u32,
}

/// Builds what a side serves.
pub(crate) type Serve = fn(Setup) -> Pin<Box<dyn Future<Output = Router> + Send>>;

/// Builds something that is not part of this program, and answers where it is.
pub(crate) type Build = fn() -> Result<PathBuf, String>;

/// Who serves a side.
#[derive(Clone, Copy)]
pub(crate) enum Server {
    This(Serve),
    /// A program that takes the URL of its Redis, prints its port and ends with standard input.
    Other(Build),
}

/// Where a side counts.
#[derive(Clone, Copy)]
pub(crate) enum Counters {
    Nowhere,
    Memory,
    /// With what it must load.
    Redis(Option<Build>),
    Cluster,
}

pub(crate) struct Side {
    /// On the command line.
    pub(crate) name: &'static str,
    /// In the tables.
    pub(crate) title: String,
    pub(super) server: Server,
    pub(super) keys: u32,
    pub(super) counters: Counters,
    /// Whether requests are answered without a call of their own.
    pub(super) saves_calls: bool,
    /// Whether it is measured over one connection too.
    pub(super) alone: bool,
    /// Nearly all that it answers.
    pub(crate) answers: Answers,
}

pub(super) fn all() -> Vec<Side> {
    let mut sides = vec![
        Side::new("none", "no limit", |_| Box::pin(async { plain() })),
        Side::new("headers", "no limit, five constant headers", |_| Box::pin(async { with_headers() })).headers(BOTH),
    ];
    sides.extend(in_memory().map(|side| side.counters(Counters::Memory)));
    sides.extend(in_redis().map(|side| side.counters(Counters::Redis(None))));
    sides.push(
        Side::new("redis-cluster", "tollgate, Redis Cluster", |Setup { url, burst }| {
            Box::pin(async move { limited(clustered(&url).await, roomy(burst)) })
        })
        .counters(Counters::Cluster)
        .headers(BOTH),
    );
    sides.extend(peers::all());
    sides
}

fn in_memory() -> [Side; 5] {
    [
        Side::new("memory", "tollgate, memory", |Setup { burst, .. }| {
            Box::pin(async move { limited(MemoryStore::new(), roomy(burst)) })
        })
        .headers(BOTH),
        Side::new("memory-hashed", "tollgate, memory, keys hashed", |Setup { burst, .. }| {
            Box::pin(async move { hashed(MemoryStore::new(), roomy(burst)) })
        })
        .headers(BOTH),
        Side::new(
            "memory-legacy-no-handle",
            "tollgate, memory, legacy headers, no handle",
            |Setup { burst, .. }| Box::pin(async move { with_legacy_headers(MemoryStore::new(), roomy(burst)) }),
        )
        .headers(LEGACY),
        Side::new("memory-bare", "tollgate, memory, no headers", |Setup { burst, .. }| {
            Box::pin(async move { without_headers(MemoryStore::new(), roomy(burst)) })
        }),
        Side::new("memory-bare-no-handle", "tollgate, memory, no headers, no handle", |Setup { burst, .. }| {
            Box::pin(async move { bare(MemoryStore::new(), roomy(burst)) })
        }),
    ]
}

fn in_redis() -> [Side; 10] {
    [
        Side::new("redis", "tollgate, Redis", |Setup { url, burst }| {
            Box::pin(async move { limited(connected(&url).await, roomy(burst)) })
        })
        .headers(BOTH),
        Side::new("redis-pool", "tollgate, Redis, a pool of the application", |Setup { url, burst }| {
            Box::pin(async move { limited(pooled(&url), roomy(burst)) })
        })
        .headers(BOTH),
        Side::new("flood", "tollgate, Redis, flood", |Setup { url, .. }| {
            Box::pin(async move { limited(connected(&url).await, SCANT) })
        })
        .few_keys()
        .flooded(),
        Side::new("leases", "tollgate, Redis, leases", |Setup { url, .. }| {
            Box::pin(async move { limited(LeaseStore::new(connected(&url).await), AMPLE) })
        })
        .headers(BOTH)
        .few_keys()
        .saving_calls(),
        Side::new("hot", "tollgate, Redis, one hot key", |Setup { url, .. }| {
            Box::pin(async move { limited(connected(&url).await, roomy(BURST_ALONE)) })
        })
        .headers(BOTH)
        .one_key(),
        Side::new("hot-leases", "tollgate, Redis, one hot key, leases", |Setup { url, .. }| {
            Box::pin(async move { limited(LeaseStore::new(connected(&url).await), AMPLE_ALONE) })
        })
        .headers(BOTH)
        .one_key()
        .saving_calls(),
        Side::new("hot-flood", "tollgate, Redis, one hot key, flood", |Setup { url, .. }| {
            Box::pin(async move { limited(connected(&url).await, SCANT) })
        })
        .one_key()
        .flooded(),
        Side::new("functions", "tollgate, Redis, functions", |Setup { url, burst }| {
            Box::pin(async move {
                let store = patient().functions().connect(&url).await.expect("connected");
                limited(store, roomy(burst))
            })
        })
        .headers(BOTH),
        Side::new("redis-bare", "tollgate, Redis, no headers", |Setup { url, burst }| {
            Box::pin(async move { without_headers(connected(&url).await, roomy(burst)) })
        }),
        Side::new("redis-bare-no-handle", "tollgate, Redis, no headers, no handle", |Setup { url, burst }| {
            Box::pin(async move { bare(connected(&url).await, roomy(burst)) })
        }),
    ]
}

impl Side {
    pub(super) fn new(name: &'static str, title: &str, serve: Serve) -> Self {
        Self::served(name, title, Server::This(serve))
    }

    pub(super) fn served(name: &'static str, title: &str, server: Server) -> Self {
        let (title, counters, answers) = (titled(title), Counters::Nowhere, Answers::admitted(NO_HEADERS));
        Self { name, title, server, keys: MANY, counters, saves_calls: false, alone: true, answers }
    }

    pub(super) fn counters(self, counters: Counters) -> Self {
        Self { counters, ..self }
    }

    pub(super) fn headers(self, headers: &'static [&'static str]) -> Self {
        Self { answers: Answers::admitted(headers), ..self }
    }

    fn few_keys(self) -> Self {
        Self { keys: FEW, ..self }
    }

    fn one_key(self) -> Self {
        Self { keys: 1, alone: false, ..self }
    }

    fn saving_calls(self) -> Self {
        Self { saves_calls: true, ..self }
    }

    fn flooded(self) -> Self {
        Self { answers: Answers::refused(REFUSED), alone: false, ..self }.saving_calls()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.answers.status != 200
    }

    /// In what its work differs from that of another.
    pub(super) fn differences(&self, other: &Side) -> Vec<String> {
        let counters = |side: &Side| match side.counters {
            Counters::Nowhere => "no limit",
            Counters::Memory => "memory",
            Counters::Redis(_) => "Redis",
            Counters::Cluster => "a Cluster",
        };
        let mut differences = self.answers.differences(other.answers);
        if self.keys != other.keys {
            differences.push(format!("{} keys against {}", self.keys, other.keys));
        }
        let [ours, theirs] = [self, other].map(counters);
        if ours != theirs {
            differences.push(format!("{ours} against {theirs}"));
        } else if self.saves_calls != other.saves_calls {
            let calls = |side: &Side| if side.saves_calls { "few calls" } else { "a call for each request" };
            differences.push(format!("{} against {}", calls(self), calls(other)));
        }
        differences
    }
}
