//! A parameter of the route.

use axum::extract::{MatchedPath, OriginalUri};
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// A parameter of the route that matched. See [`path_param`].
#[derive(Clone, Debug)]
pub struct PathParam {
    name: String,
    kind: Kind,
}

/// Counts by a parameter of the route, such as `id` in `/users/{id}` or `rest` in `/files/{*rest}`,
/// percent-decoded.
///
/// The value stays readable in the store unless it is long. A request whose route has no such parameter
/// has no key. axum knows the route only in layers added with `Router::layer` or `route_layer`, not in
/// those around the whole service.
pub fn path_param(name: &str) -> PathParam {
    PathParam { name: name.to_owned(), kind: Kind::new(&format!("path_param {name}")) }
}

impl KeyExtractor for PathParam {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(self.value(parts).map(|value| self.kind.key(&value)).into())
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(self.value(parts));
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("path_param", &self.name, |_| true)
    }
}

impl PathParam {
    fn value(&self, parts: &Parts) -> Option<Vec<u8>> {
        let template = parts.extensions.get::<MatchedPath>();
        // The template is that of the outermost router, but nested ones see a shortened path.
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri);
        let value = template.and_then(|template| capture(template.as_str(), uri.path(), &self.name));
        value.map(|value| percent_decode_str(value).collect())
    }
}

/// What the path has where the template has `{name}` or `{*name}`.
fn capture<'a>(template: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = path;
    for segment in template.split('/') {
        let (here, after) = rest.split_once('/').unwrap_or((rest, ""));
        match parameter(segment, name) {
            Some(Parameter { tail: true, before, .. }) => return rest.get(before..),
            Some(Parameter { before, after, .. }) => return here.get(before..here.len().checked_sub(after)?),
            None => rest = after,
        }
    }
    None
}

/// A parameter in a segment, which static text may surround.
struct Parameter {
    /// How many bytes of the path stand before it in the segment.
    before: usize,
    /// How many stand after it.
    after: usize,
    /// Whether it takes the rest of the path.
    tail: bool,
}

fn parameter(segment: &str, name: &str) -> Option<Parameter> {
    let open = segment.match_indices('{').map(|(at, _)| at).find(|at| opens(segment, *at))?;
    let (inside, after) = segment[open + 1..].split_once('}')?;
    let tail = inside.strip_prefix('*');
    let found = Parameter { before: unescaped(&segment[..open]), after: unescaped(after), tail: tail.is_some() };
    (tail.unwrap_or(inside) == name).then_some(found)
}

/// Whether the brace opens a parameter: doubled ones are text.
fn opens(segment: &str, at: usize) -> bool {
    let before = segment[..at].bytes().rev().take_while(|byte| *byte == b'{').count();
    before % 2 == 0 && !segment[at + 1..].starts_with('{')
}

/// The length of static text whose braces are doubled.
fn unescaped(text: &str) -> usize {
    text.replace("{{", "{").replace("}}", "}").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(template: &str, path: &str, value: Option<&str>) {
        assert_eq!(capture(template, path, "id"), value);
    }

    #[test]
    fn a_parameter_is_what_the_path_has_in_its_place() {
        row("/users/{id}", "/users/7", Some("7"));
        row("/{id}", "/7", Some("7"));
        row("/a/{x}/{id}/b", "/a/1/2/b", Some("2"));
        row("/users/{other}", "/users/7", None);
        row("/users/id", "/users/id", None);
        row("/", "/", None);
        row("/users/{id}", "/users", Some(""));
    }

    #[test]
    fn a_wildcard_takes_the_rest_of_the_path() {
        row("/files/{*id}", "/files/a/b/", Some("a/b/"));
        row("/{*id}", "/a", Some("a"));
        row("/files/{*rest}", "/files/a", None);
    }

    #[test]
    fn static_text_around_a_parameter_is_left_out() {
        row("/v{id}", "/v7", Some("7"));
        row("/{id}.png", "/7.png", Some("7"));
        row("/{{{id}", "/{7", Some("7"));
        row("/{{id}}", "/{id}", None);
        row("/{{id}}/{id}", "/{id}/7", Some("7"));
        row("/long{id}", "/é", None);
    }
}
