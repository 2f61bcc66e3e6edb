//! What a policy's options do to requests: through the layer, on memory and on Redis.
#![cfg(all(feature = "axum", feature = "redis"))]

#[allow(dead_code, reason = "shared with other tests")]
mod support {
    pub(crate) mod clock;
    pub(crate) mod log;
    pub(crate) mod server;
}

#[path = "policies/bad_input.rs"]
mod bad_input;
#[path = "policies/calls.rs"]
mod calls;
#[path = "policies/composite.rs"]
mod composite;
#[path = "policies/cost.rs"]
mod cost;
#[path = "policies/handle.rs"]
mod handle;
#[path = "policies/idle_lists.rs"]
mod idle_lists;
#[path = "policies/listed_parts.rs"]
mod listed_parts;
#[path = "policies/lists.rs"]
mod lists;
#[path = "policies/missing.rs"]
mod missing;
#[path = "policies/outcome.rs"]
mod outcome;
#[path = "policies/replaced.rs"]
mod replaced;
#[path = "policies/reserve.rs"]
mod reserve;
#[path = "policies/rig.rs"]
mod rig;
#[path = "policies/scope.rs"]
mod scope;
#[path = "policies/shadow.rs"]
mod shadow;
#[path = "policies/tier_lookup.rs"]
mod tier_lookup;
#[path = "policies/tiers.rs"]
mod tiers;
