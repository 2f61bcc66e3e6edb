//! Calls of the application's code from a `Drop`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Calls what may panic. While the thread unwinds already, where a second panic would end the process, a panic ends with
/// the call, and there is no result.
pub(crate) fn in_drop<R>(call: impl FnOnce() -> R) -> Option<R> {
    if thread::panicking() { catch_unwind(AssertUnwindSafe(call)).ok() } else { Some(call()) }
}
