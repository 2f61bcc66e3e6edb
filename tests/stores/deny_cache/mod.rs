//! What is answered from earlier refusals, and what is not.

mod answers;
mod bans;
mod bounds;
#[cfg(feature = "calendar")]
mod calendar;
mod forgetting;
mod policies;
#[cfg(feature = "redis")]
mod redis;
mod requests;
mod rig;
mod sound;
