//! Calls written by hand.

mod bytes;
mod calls;
mod counters;
mod history;
mod lua;
mod scripts;
mod shape;
