//! Clients that mean harm: what they send, and what they make up.

mod bans;
mod heads;
mod keys;
