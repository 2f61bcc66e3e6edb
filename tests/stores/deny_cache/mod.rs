//! What is answered from earlier refusals, and what is not.

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    pub(crate) mod clock;
    #[cfg(feature = "redis")]
    pub(crate) mod server;
    pub(crate) mod slow;
}

mod answers;
mod bounds;
mod forgetting;
#[cfg(all(feature = "redis", feature = "axum"))]
mod http;
mod policies;
#[cfg(feature = "redis")]
mod redis;
mod requests;
mod rig;
mod sound;
