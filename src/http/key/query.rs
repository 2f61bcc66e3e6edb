//! Extracts the value of a query parameter.
//!
//! Queries are parsed as forms, as axum's `Query` does it. A parameter may come several times, and some servers also
//! split queries at `;`. Where such readings differ, the parameter is ambiguous.

use std::borrow::Cow;

use http::request::Parts;

use super::Ambiguous;
use super::value::{Pick, Source, Value, ValueKey, bytes};

/// Identifies clients by the value of a query parameter.
///
/// Names and values are percent-decoded, and `+` is a space. A parameter that comes with several values that differ is
/// [ambiguous](super::Extracted::Ambiguous), unless [`first`](ValueKey::first) or [`last`](ValueKey::last) states which
/// of them the application reads. So is one that has another value if `;` separates parameters as `&` does.
///
/// The value stays readable in the store, unless it is longer than 64 bytes, escaped: then it is hashed. A request
/// without the parameter has no key; an empty value is a value like any other.
///
/// The client chooses the value: each one it makes up starts a counter of its own.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let tenant = key::query("tenant");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&page=2").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = tenant.extract(&parts) else { panic!("there is a tenant") };
/// assert_eq!(key.as_str(), "query tenant:acme");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&tenant=eve").body(())?.into_parts();
/// assert!(matches!(tenant.extract(&parts), Answer::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn query(name: &str) -> ValueKey {
    ValueKey::new(Source::Query(name.to_owned()), &format!("query {name}")).plain()
}

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
