#![doc = include_str!("../README.md")]
//!
//! # Overrides of a fleet
//!
//! [`Admin::redis`] keeps overrides in one hash of Redis, `<prefix>:overrides`. Every process reads the hash each
//! second. The process that writes an override applies it at once. While Redis is unavailable, the last known overrides
//! stay in force until they end. The clock of Redis decides when an override ends.
//!
//! [`Admin::file`] keeps them in a file that several processes of one host may share. If two of them write at once, one
//! change may be lost. [`Admin::local`] keeps overrides in this process alone.
//!
//! An `Admin` owns the overrides of its layers. It replaces the overrides that the program sets by
//! [`LiveLayer::overrides`](tollgate::LiveLayer::overrides).
//!
//! # Routes
//!
//! Every request to [`Admin::router`] has to pass the guard. All bodies are JSON. An error is `{"error": "what is
//! wrong"}` with 400, or with 503 if the store failed. Without a `layer`, a request is for all layers that have the
//! policy. `GET /counters` shows the first of them.
//!
//! Nest the router below a path. If you merge it, its guard also answers all unknown paths of the app.
//!
//! | route | does |
//! | --- | --- |
//! | `GET /policies` | lists layers, their policies, and the state of their circuit breakers |
//! | `GET /top` | lists the keys with most requests and denials, if the admin has a [`Top`] |
//! | `GET /overrides` | lists overrides |
//! | `PUT /overrides` | sets the [`Entry`] in the body, with `for_seconds` instead of `until_ms` |
//! | `DELETE /overrides` | removes the [`Entry`] of the same kind, policy and key |
//! | `GET /counters?policy=plan&key=ada` | shows what a key has left, as a serialized [`Decision`](tollgate::Decision) |
//! | `POST /counters/reset`, `/counters/refund`, `/counters/lift-ban` | changes the counters of `{"policy": "plan", "key": "ada"}`; a refund has `units` |
//!
//! A `key` is either the value that the client sends, such as `ada`, or the whole key, such as `header x-user:ada`.

mod admin;
mod entry;
mod error;
mod fleet;
mod router;
mod source;
mod top;

pub use self::admin::Admin;
pub use self::entry::{EffectKind, Entry};
pub use self::fleet::{Fleet, PolicyState};
pub use self::top::{Top, TopKey};
