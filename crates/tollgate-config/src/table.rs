//! What `tollgate-shed` and `tollgate-ratio` use for their tables of the same file. Any version may change it, so they
//! depend on an exact one.

pub use super::error::{At, Fault, Source};
pub use super::headers::{Critical, OnlyValue};
pub use super::values::duration;
