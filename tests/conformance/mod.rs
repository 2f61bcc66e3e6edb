//! What every store must answer: the same tests, on memory and on Redis, by the same clock.

mod counters;
mod fixed_window;
mod requests;
mod rows;
mod settlements;
mod shadow;
mod subject;
mod token_bucket;
mod traces;
