//! One table per algorithm, run on memory and on Redis: what each request is answered.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support"]
mod support {
    pub(crate) mod checks;
    pub(crate) mod clock;
    pub(crate) mod server;
}

mod advice;
mod bounds;
mod compared;
mod format;
#[allow(dead_code, reason = "shared with other tests")]
mod rows;
#[allow(dead_code, reason = "shared with other tests")]
mod subject;
// Named, so that its tables are beside it wherever it is included from.
#[path = "tables.rs"]
mod tables;
