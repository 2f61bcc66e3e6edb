//! Stores that fail: when they are asked, what is decided instead, and how soon.

#[path = "../support"]
mod support {
    #[cfg(all(feature = "redis", feature = "axum"))]
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod control;
    pub(crate) mod log;
    #[cfg(all(feature = "redis", feature = "axum"))]
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod server;
}

mod breaker;
mod budget;
#[cfg(all(feature = "redis", feature = "axum"))]
mod late;
mod logs;
mod probes;
#[cfg(all(feature = "redis", feature = "axum"))]
mod redis;
mod rig;
mod rules;
mod shares;
mod wrappers;
