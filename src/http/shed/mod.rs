//! Load shedders, which refuse less important requests under load, and back-pressure, which makes callers wait.
//!
//! [`BackPressureLayer`] is for jobs: a service is ready when a [`Limiter`](crate::Limiter) admits the next call. The
//! rest of this page is about load shedders, which refuse some requests so that the others are served.
//!
//! Rate limits protect a service from single clients; shedders protect it from the sum of all. There are two, for two
//! questions:
//!
//! - [`FleetShedLayer`]: how many requests are in progress in all processes together? A part of the slots is kept for
//!   [critical](Class::Critical) requests, and others are shed while they hold the rest.
//! - [`WorkerShedLayer`]: does this process have too much to do? If so for a time, it sheds more and more requests,
//!   [test traffic](Class::Test) first, then reads, then writes.
//!
//! Neither sheds critical requests. A request that is shed gets a 503 with `Retry-After` and a problem document of the
//! type `temporary-reduced-capacity`, which names the shedder, or `UNAVAILABLE` if it is a gRPC call, and has [`Shed`] in
//! the extensions of its response. The service inside is not called.
//!
//! **Who is critical?** A class must not follow from what any client can send: one that can declare its requests
//! critical is never shed. Derive it from the route, from a user that is authenticated, or from a header that something
//! before the shedder sets or removes.
//!
//! # Where to put them
//!
//! Outside of the limits of users, as these cost more and charge units that a shed request should not cost; inside of
//! what decides cheaply who is too fast, such as a limit by address in memory. The worker shedder needs no store, so it
//! comes before that of the fleet. The outermost shedder determines the [`Class`] of a request and inserts it into the
//! extensions; the others find it there, and so do handlers.
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use http::request::Parts;
//! use std::num::NonZeroU32;
//! use tollgate::shed::{Class, FleetShedLayer, WorkerShedLayer};
//! use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
//!
//! fn class(parts: &Parts) -> Class {
//!     if parts.uri.path() == "/charges" { Class::Critical } else { Class::from_parts(parts) }
//! }
//!
//! let store = MemoryStore::new();
//! let at_once = NonZeroU32::new(256).expect("it is not zero");
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .route("/reports", get(|| async { "a report" }))
//!     // The last layer that is added is the outermost.
//!     .layer(RateLimitLayer::new(store.clone(), Policy::new("user", Quota::per_minute(600)).key(key::header("x-user"))))
//!     .layer(FleetShedLayer::new(store, "fleet", Quota::concurrency(500), 0.2))
//!     .layer(WorkerShedLayer::new("worker", at_once).classify(class));
//! # let _ = app;
//! ```
//!
//! docs/shedding.md in the repository has the reasons, the ramp of the worker shedder, and what both cost.

mod back_pressure;
mod fleet;
mod ramp;
mod service;
mod shedder;
mod worker;

pub use self::back_pressure::{BackPressure, BackPressureFuture, BackPressureLayer};
pub use self::fleet::{FleetShed, FleetShedLayer};
pub use self::ramp::Ramp;
pub use self::service::{ShedBody, WorkerShed, WorkerShedFuture};
pub use self::shedder::{Class, Shed};
pub use self::worker::WorkerShedLayer;
