//! The sides.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use axum::Router;
use tollgate::MemoryStore;
use tollgate::store::LeaseStore;

use super::app::{
    AMPLE, AMPLE_ALONE, SCANT, bare, connected, hashed, limited, patient, plain, roomy, with_headers,
    with_legacy_headers, without_headers,
};
use super::peers;

const MANY: u32 = 100_000;
const FEW: u32 = 100;

/// Builds what a side serves, from the URL of its Redis.
pub(crate) type Serve = fn(String) -> Pin<Box<dyn Future<Output = Router> + Send>>;

/// Builds something that is not part of this program, and answers where it is.
pub(crate) type Build = fn() -> Result<PathBuf, String>;

/// Who serves a side.
#[derive(Clone, Copy)]
pub(crate) enum Server {
    This(Serve),
    /// A program that takes the URL of its Redis, prints its port and ends with standard input.
    Other(Build),
}

pub(crate) struct Side {
    /// On the command line.
    pub(crate) name: &'static str,
    /// In the tables.
    pub(crate) title: &'static str,
    pub(super) server: Server,
    pub(crate) keys: u32,
    pub(super) redis: bool,
    /// What its Redis must load.
    pub(super) module: Option<Build>,
    /// Whether nearly all requests are refused, instead of none.
    pub(super) refused: bool,
    /// Whether it is measured over one connection too.
    pub(super) alone: bool,
    /// A header every response has, as a proof that the limit is in place.
    pub(crate) proof: Option<&'static str>,
}

pub(super) fn all() -> Vec<Side> {
    let mut sides = vec![
        Side::new("none", "no limit", |_| Box::pin(async { plain() })),
        Side::new("memory", "tollgate, memory", |_| Box::pin(async { limited(MemoryStore::new(), roomy()) }))
            .proof("x-ratelimit-remaining"),
        Side::new("redis", "tollgate, Redis", |url| Box::pin(async { limited(connected(url).await, roomy()) }))
            .redis()
            .proof("x-ratelimit-remaining"),
        Side::new("flood", "tollgate, Redis, flood", |url| Box::pin(async { limited(connected(url).await, SCANT) }))
            .redis()
            .proof("x-ratelimit-remaining")
            .few_keys()
            .flooded(),
        Side::new("leases", "tollgate, Redis, leases", |url| {
            Box::pin(async { limited(LeaseStore::new(connected(url).await), AMPLE) })
        })
        .redis()
        .proof("x-ratelimit-remaining")
        .few_keys(),
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
                let store = patient().functions().connect(&url).await.expect("connected");
                limited(store, roomy())
            })
        })
        .redis()
        .proof("x-ratelimit-remaining"),
        Side::new("memory-hashed", "tollgate, memory, keys hashed", |_| Box::pin(async { hashed(MemoryStore::new()) }))
            .proof("x-ratelimit-remaining"),
        Side::new("memory-bare", "tollgate, memory, no headers", |_| {
            Box::pin(async { without_headers(MemoryStore::new()) })
        }),
        Side::new("memory-bare-no-handle", "tollgate, memory, no headers, no handle", |_| {
            Box::pin(async { bare(MemoryStore::new()) })
        }),
        Side::new("memory-legacy-no-handle", "tollgate, memory, legacy headers, no handle", |_| {
            Box::pin(async { with_legacy_headers(MemoryStore::new()) })
        })
        .proof("x-ratelimit-remaining"),
        Side::new("redis-bare", "tollgate, Redis, no headers", |url| {
            Box::pin(async { without_headers(connected(url).await) })
        })
        .redis(),
        Side::new("redis-bare-no-handle", "tollgate, Redis, no headers, no handle", |url| {
            Box::pin(async { bare(connected(url).await) })
        })
        .redis(),
        Side::new("headers", "no limit, five constant headers", |_| Box::pin(async { with_headers() }))
            .proof("x-ratelimit-remaining"),
    ];
    sides.extend(peers::all());
    sides
}

impl Side {
    pub(super) fn new(name: &'static str, title: &'static str, serve: Serve) -> Self {
        Self::served(name, title, Server::This(serve))
    }

    pub(super) fn program(name: &'static str, title: &'static str, build: Build) -> Self {
        Self::served(name, title, Server::Other(build))
    }

    fn served(name: &'static str, title: &'static str, server: Server) -> Self {
        Self { name, title, server, keys: MANY, redis: false, module: None, refused: false, alone: true, proof: None }
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
}
