//! Calls written by hand.

mod bytes;
mod counters;
mod history;
mod lua;
mod scripts;
