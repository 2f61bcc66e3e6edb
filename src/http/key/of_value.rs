//! Keys of values that are given by hand, for operations on the counter of one client.

use std::fmt::Display;

use super::Key;
use crate::core::Error;

/// Makes the key of the only value there is; `make` returns `None` if no request can have it.
///
/// # Errors
///
/// If no request can have the value, or there are more values or none. The value may be a secret, so it is not in the
/// message.
pub(super) fn of_one(
    kind: impl Display,
    values: &[&[u8]],
    make: impl FnOnce(&[u8]) -> Option<Key>,
) -> Result<Key, Error> {
    let [value] = values else {
        return Err(Error::invalid(format!("key \"{kind}\" has one part, and {} values were given", values.len())));
    };
    make(value).ok_or_else(|| Error::invalid(format!("key \"{kind}\" never has this value")))
}

/// Returns the error of a key whose kind is not known.
pub(super) fn unknown() -> Error {
    Error::invalid(
        "this key comes from a closure, so its kind is not known: make it with Key::new, as the closure does",
    )
}
