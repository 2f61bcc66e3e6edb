//! Slots of requests through layers: taken by decisions, held by bodies and guards, released once.

mod bodies;
mod dropped;
mod guards;
mod layers;
mod lives;
mod rig;
