//! Extracts a parameter of the route that matched, as axum's `Path` has it.
//!
//! Layers of a router see a request without its parameters: axum keeps them where only its own extractor can read
//! them, which clones the extensions. So the value is captured from the path by the route's template, which costs
//! less, and axum is consulted only where the path was rewritten after it was routed, or no template is known.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, NestedPath, OriginalUri, RawPathParams};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

use super::reading::{Reading, bytes, same, text};
use super::template::{Piece, pieces};
use super::{Ambiguous, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;
use crate::lookup::RawValues;

/// An extractor of a parameter of the route that matched.
///
/// Made by [`path_param`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct PathParam {
    name: String,
    reading: Reading,
}

/// Identifies clients by a parameter of the route, such as `id` in `/users/{id}` or `rest` in `/files/{*rest}`.
///
/// The value is percent-decoded, and is the one that axum's `Path` has, also if the path was rewritten before it was
/// routed. It stays readable in the store, unless it is longer than 64 bytes, escaped: then it is hashed. A request
/// whose route has no such parameter has no key. The parameter is [ambiguous](Extracted::Ambiguous) if its value is not
/// UTF-8, or if nested routers have several with this name that differ.
///
/// axum sets the route only in layers that are added with `Router::layer` or `route_layer`, not in those around the
/// whole service.
///
/// If the application parses the value, several spellings are one client: to `Path<u64>`, `07` and `+7` are `7`. Set
/// [`normalize`](PathParam::normalize) for it.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let policy = Policy::new("tenant", Quota::per_minute(600)).key(key::path_param("tenant"));
/// let app: Router = Router::new()
///     .route("/{tenant}/orders", get(|| async {}))
///     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
/// # let _ = app;
/// ```
pub fn path_param(name: &str) -> PathParam {
    PathParam { name: name.to_owned(), reading: Reading::new(&format!("path_param {name}")).plain() }
}

impl KeyExtractor for PathParam {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        self.reading.extracted(one(self.values(parts)).map(|value| value.map(|value| self.form(value))))
    }

    fn info(&self) -> KeyInfo {
        self.reading.info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        self.reading.key_of(value, text)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        for value in self.values(parts) {
            match value {
                Value::Text(text) => offered.push(self.form(text)),
                Value::NoText(bytes) => offered.push(bytes),
                Value::Unknown => offered.lack(),
            }
        }
    }
}

impl PathParam {
    /// Ignores the case of ASCII letters, for applications that do: values are lower-cased.
    pub fn ignore_case(self) -> Self {
        Self { reading: self.reading.ignore_case(), ..self }
    }

    /// Identifies clients by the result of a function of the decoded value.
    ///
    /// The function must return one result for all values that the application treats as one client, and must return
    /// its own results unchanged: entries of [lists](crate::AccessList) are such results.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// // The application has `Path<u64>`.
    /// let user = key::path_param("id").normalize(|id| match std::str::from_utf8(id).map(str::parse::<u64>) {
    ///     Ok(Ok(number)) => number.to_string().into_bytes().into(),
    ///     _ => id.into(),
    /// });
    /// # let _ = user;
    /// ```
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        Self { reading: self.reading.normalize(normalize), ..self }
    }

    /// Returns the normal form of a value.
    fn form<'a>(&self, value: Cow<'a, str>) -> Cow<'a, [u8]> {
        self.reading.form(bytes(value))
    }

    /// Returns the values of all parameters with this name.
    fn values<'a>(&self, parts: &'a Parts) -> Values<'a> {
        // A nested service, or the fallback of a nested router, has parameters of its prefix and no route.
        let Some(template) = parts.extensions.get::<MatchedPath>() else { return values_of_router(parts, &self.name) };
        // The template is that of the outermost router, but nested ones see a shortened path.
        let whole = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |OriginalUri(uri)| uri.path());
        let found = if is_routed(whole, parts) { captures(template.as_str(), whole, &self.name) } else { None };
        match found {
            Some(found) => found.into_iter().map(decoded).collect(),
            None => values_of_router(parts, &self.name),
        }
    }
}

type Values<'a> = SmallVec<[Value<'a>; 1]>;

/// A decoded value.
#[derive(PartialEq)]
enum Value<'a> {
    Text(Cow<'a, str>),
    /// Bytes that are not UTF-8.
    NoText(Vec<u8>),
    /// A value that is not UTF-8, of a parameter that axum does not name.
    Unknown,
}

/// Percent-decodes a value.
fn decoded(raw: &str) -> Value<'_> {
    let decoded = percent_decode_str(raw);
    decoded.clone().decode_utf8().map_or_else(|_| Value::NoText(decoded.collect()), Value::Text)
}

/// Returns the value, if all are text and equal.
fn one(values: Values<'_>) -> Result<Option<Cow<'_, str>>, Ambiguous> {
    match same(values.into_iter())? {
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Ambiguous),
        None => Ok(None),
    }
}

/// Whether `whole` is the path that was routed: the request's own, with the prefix that nested routers removed.
fn is_routed(whole: &str, parts: &Parts) -> bool {
    let path = parts.uri.path();
    let is_nested = |prefix| {
        let nest = parts.extensions.get::<NestedPath>();
        nest.is_some_and(|nest| captures(nest.as_str(), prefix, "").is_some())
    };
    path == whole || whole.strip_suffix(path).is_some_and(is_nested)
}

/// Returns what a path has where its template has `{name}` or `{*name}`; `None` if it does not match the template.
fn captures<'a>(template: &str, path: &'a str, name: &str) -> Option<SmallVec<[&'a str; 1]>> {
    let (mut rest, mut found) = (path, SmallVec::new());
    for piece in pieces(template) {
        let (value, of) = match piece.ok()? {
            Piece::Text(text) => {
                rest = rest.strip_prefix(text)?;
                continue;
            }
            Piece::Parameter(of) => (&rest[..rest.find('/').unwrap_or(rest.len())], of),
            Piece::Rest(of) => (rest, of),
        };
        rest = &rest[value.len()..];
        if of == name {
            found.push(value);
        }
    }
    rest.is_empty().then_some(found)
}

/// Returns the values that the router itself captured, which only axum's extractor can read.
fn values_of_router<'a>(parts: &'a Parts, name: &str) -> Values<'a> {
    let mut of_router = http::Request::new(()).into_parts().0;
    of_router.extensions = parts.extensions.clone();
    let params = pin!(RawPathParams::from_request_parts(&mut of_router, &()));
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => {
            let named = params.iter().filter(|(of, _)| *of == name);
            named.map(|(_, value)| Value::Text(Cow::Owned(value.to_owned()))).collect()
        }
        // Without parameters there is none of this name; else one is no text, and the router does not return which.
        Poll::Ready(Err(RawPathParamsRejection::MissingPathParams(_))) => Values::new(),
        _ => [Value::Unknown].into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(template: &str, path: &str, values: Option<&[&str]>) {
        assert_eq!(captures(template, path, "id").as_deref(), values, "{template} {path}");
    }

    #[test]
    fn a_parameter_is_what_the_path_has_in_its_place() {
        row("/users/{id}", "/users/7", Some(&["7"]));
        row("/{id}", "/7", Some(&["7"]));
        row("/a/{x}/{id}/b", "/a/1/2/b", Some(&["2"]));
        row("/users/{other}", "/users/7", Some(&[]));
        row("/users/id", "/users/id", Some(&[]));
        row("/", "/", Some(&[]));
        row("/{id}/a/{id}", "/1/a/2", Some(&["1", "2"]));
    }

    #[test]
    fn a_wildcard_takes_the_rest_of_the_path() {
        row("/files/{*id}", "/files/a/b/", Some(&["a/b/"]));
        row("/{*id}", "/a", Some(&["a"]));
        row("/files/{*rest}", "/files/a", Some(&[]));
    }

    #[test]
    fn static_text_around_a_parameter_is_left_out() {
        row("/v{id}", "/v7", Some(&["7"]));
        row("/{{{id}", "/{7", Some(&["7"]));
        row("/{{id}}", "/{id}", Some(&[]));
        row("/{{id}}/{id}", "/{id}/7", Some(&["7"]));
    }

    #[test]
    fn a_path_of_another_template_has_no_parameters() {
        row("/users/{id}", "/users", None);
        row("/users/{id}", "/a/users/7", None);
        row("/users/{id}", "/users/7/b", None);
        row("/long{id}", "/é", None);
    }
}
