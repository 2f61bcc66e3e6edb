//! What is answered from earlier refusals, and what is not.

mod answers;
mod bans;
mod forgetting;
#[cfg(feature = "redis")]
mod redis;
mod rig;
mod sound;
