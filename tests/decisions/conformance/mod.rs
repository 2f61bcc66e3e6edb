//! What every store must answer: the same tests, on memory and on Redis, by the same clock.

mod counters;
mod requests;
mod settlements;
mod shadow;
mod traces;
