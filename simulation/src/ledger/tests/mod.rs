//! Calls written by hand.

mod ban_shape;
mod banned;
mod bytes;
mod calls;
mod counters;
mod history;
mod lua;
mod reports;
mod scripts;
mod shape;
