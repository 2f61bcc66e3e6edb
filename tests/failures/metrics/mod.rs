//! What operators can watch with the feature `metrics`: each thing counted once, under its name, with
//! nothing of a request in it.

mod decisions;
mod documented;
mod labels;
mod outages;
mod ratios;
mod shed;
mod slots;
mod watch;
