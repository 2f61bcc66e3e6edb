//! The headers that tell clients about their limits: which are sent, their values, and how they are written beside
//! those that are there.

mod fields;
mod merge;
mod names;
mod numbers;
mod settings;
mod write;

pub use self::names::EXPOSED_HEADERS;
pub(crate) use self::numbers::{Advertised, LARGEST, Left, number, used, whole_seconds};
pub use self::settings::{Dialect, Headers};
pub(crate) use self::write::HeaderWriter;
