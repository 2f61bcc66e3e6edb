//! Clients that mean harm: what they send, what they make up, and when they go away.

mod bans;
mod bombs;
mod dropped;
mod heads;
