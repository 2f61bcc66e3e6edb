//! What a policy's options do to requests: through the layer, on memory and on Redis.

mod bad_input;
mod built;
mod calls;
mod client;
mod composite;
mod cost;
mod flushed;
mod handle;
mod idle_lists;
mod listed_parts;
mod lists;
mod missing;
mod outcome;
mod replaced;
mod reserve;
mod rig;
mod scope;
mod served;
mod shadow;
mod tier_lookup;
mod tiers;
