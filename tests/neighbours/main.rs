//! One store, and somebody who stalls: no caller, handler, thread or runtime makes a decision of
//! another fail.
//!
//! Alone in its program, as it stalls the machine and judges times: its scenarios take turns.
//! `cargo test -p tollgate-tests --test neighbours -- --nocapture` prints what became of the others.

#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;

mod blocking;
mod counted;
mod http;
mod left;
mod order;
mod others;
mod paused;
mod rig;
mod runtimes;
mod settling;
mod vanishing;
mod watch;
