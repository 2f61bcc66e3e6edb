//! Shedders: what is shed when, with which response, and what counts as in progress.

mod documents;
mod fleet;
mod held;
mod nested;
mod rig;
mod worker;
