//! Encoding of requests and decoding of replies: key names, script arguments, script sources, replies and verdicts.
//!
//! ```text
//! checks, changes ── request, names ──▶ Request ── packed ──▶ keys and bytes ── script ──▶ a command
//! decision ◀── verdict ── ReplyPart ◀── reply ── the bytes that the script returns
//! ```
//!
//! The head of `lua/wire.lua` defines the format of both directions. A number is big-endian, of 7 bytes unless
//! documented otherwise, and below 2^52, because Lua's doubles hold such a number exactly.
//!
//! Nothing here does I/O, so tests need no server.

mod packed;
mod reply;
mod request;
mod script;
mod source;

pub(super) use packed::Packer;
pub(super) use reply::{ReplyPart, ScriptReply, Verdict, applied_change, no_decision, step_of_one};
pub(super) use request::{MAX_CHECKS, Request, redis_key};
pub(super) use script::{CHECK, Calls, Program, Way};
