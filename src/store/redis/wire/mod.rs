//! What is written to Redis and read from it: the names of keys, requests as the arguments of a call, scripts and
//! their source, replies, and the verdicts that they come to.

mod names;
mod needs;
pub(super) mod packed;
mod reply;
mod request;
mod script;
mod source;
pub(super) mod verdict;

#[cfg(feature = "redis-cell")]
pub(in crate::store) use names::cell_key;
pub(super) use names::redis_key;
pub(super) use needs::Needs;
pub(super) use packed::Packed;
pub(super) use reply::{Answered, Reply};
pub(super) use request::{MOST_CHECKS, Request};
pub(super) use script::{CHECK, Calls, MOST_LOADS, Program, Way, is_missing, last_of};
pub(super) use verdict::Verdict;
