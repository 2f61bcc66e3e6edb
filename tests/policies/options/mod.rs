//! What a policy's options do to requests, through the layer: the conformance suite shows that stores decide alike.

mod built;
mod calls;
mod client;
mod cost;
mod entries;
mod events;
mod flushed;
mod handle;
mod lists;
mod missing;
mod outcome;
mod overrides;
mod replaced;
mod reserve;
mod scope;
mod served;
mod shadow;
mod tiers;
