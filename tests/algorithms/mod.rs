//! One table per algorithm, run on memory and on Redis: what each request is answered.

mod advice;
mod bounds;
mod fixed_window;
mod leaky_bucket;
mod rows;
mod sliding_log;
mod sliding_window;
mod subject;
mod token_bucket;
