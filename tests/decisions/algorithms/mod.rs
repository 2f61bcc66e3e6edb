//! One table per algorithm, run on memory and on Redis: what each request is answered.

mod advice;
mod bounds;
mod compared;
mod format;
#[allow(dead_code, reason = "shared with other tests")]
pub(crate) mod rows;
#[allow(dead_code, reason = "shared with other tests")]
pub(crate) mod subject;
// Named, so that its tables are beside it wherever it is included from.
#[path = "tables.rs"]
mod tables;
