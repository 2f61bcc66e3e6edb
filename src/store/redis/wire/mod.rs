//! What is written to Redis and read from it: the names of keys, requests as the arguments of a
//! call, scripts and their source, replies, and the verdicts that they come to.
//!
//! Checks, changes and the bytes of a reply come in; commands go out, and
//! decisions step by step:
//!
//! ```text
//! checks, changes ── request, names ──▶ Request ── packed ──▶ keys and bytes ── script ──▶ a command
//! decision ◀── verdict ── ReplyPart ◀── reply ── the bytes that the script returns
//! ```
//!
//! The format of both directions is defined once, at the head of `lua/wire.lua`. This folder is its other side. A number is
//! big-endian, of 7 bytes unless documented otherwise, and below 2^52, so that Lua's doubles hold it exactly.
//!
//! Nothing here uses a connection, or waits for anything: all of it can be tested without a
//! server. Only `store/redis/` uses it.

mod packed;
mod reply;
mod request;
mod script;
mod source;

pub(super) use packed::{KeyHashes, Packed};
pub(super) use reply::{ReplyPart, ScriptReply, Verdict, applied_change, no_decision, step_of_one};
pub(super) use request::{MOST_CHECKS, Request, redis_key};
pub(super) use script::{CHECK, Calls, Program, Way};
