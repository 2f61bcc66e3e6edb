//! What a policy's options do to requests: through the layer, on memory and on Redis.

mod built;
mod calls;
mod client;
mod cost;
mod entries;
mod flushed;
mod handle;
mod lists;
mod missing;
mod outcome;
mod replaced;
mod reserve;
mod scope;
mod served;
mod shadow;
mod tiers;
