//! Limits asked from code, and the service that tells clients what they have left.

mod asked;
mod bans;
mod counters;
mod failures;
mod inside;
mod selected;
mod shown;
mod status;
mod waiting;
