//! Extracts the value of a query parameter.
//!
//! Queries are parsed as forms, as axum's `Query` does it. A parameter may come several times, and some servers also
//! split queries at `;`. Where such readings differ, the parameter is ambiguous.

use std::borrow::Cow;

use http::request::Parts;

use super::Ambiguous;
use super::reading::{Pick, Value, bytes};

/// Returns the value that counts, if there is one.
pub(super) fn value<'a>(
    parts: &'a Parts,
    name: &str,
    pick: Pick,
    form: impl Fn(Cow<'a, [u8]>) -> Cow<'a, [u8]>,
) -> Value<'a> {
    let query = parts.uri.query().unwrap_or_default();
    let values = |piece: &'a str| {
        let pairs = form_urlencoded::parse(piece.as_bytes()).filter(|(of, _)| *of == name);
        pairs.map(|(_, value)| form(bytes(value)))
    };
    // Where `;` separates parameters, too.
    if query.contains(';') && !values(query).eq(query.split(';').flat_map(values)) {
        return Err(Ambiguous);
    }
    pick.of(values(query))
}
