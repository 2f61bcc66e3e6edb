//! Keys from the route that matched, and from the parameters of its path.
//!
//! Unlike the path, a route belongs to the server, so there are as many counters as routes, whatever clients send.
//!
//! Parameters are equal to the values of axum's `Path`. axum keeps them where only its own extractor can read them, and
//! this extractor clones the extensions. So a value is captured from the path by the route's template, because this
//! costs less. axum's extractor is used only if the path was rewritten after it was routed, or if no template is known.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, NestedPath, OriginalUri, RawPathParams};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

use super::extracted::{Ambiguous, Extracted};
use super::reading::{Choices, Value, bytes};
use super::template::{Piece, is_template, matched, normal, pieces};
use super::{KeyExtractor, KeyInfo};
use crate::core::{Key, KeyKind, MaybeFuture};

static KIND: KeyKind = KeyKind::fixed("route:");

/// Shared by all requests that matched no route, because random paths must not start fresh counters.
const UNMATCHED: &str = "<unmatched>";

#[derive(Clone, Copy, Debug)]
pub(super) struct Route;

/// Counts requests by the template of their route, such as `/users/{id}`.
///
/// Requests that matched no route share one counter. axum sets the route only in layers that are added with
/// `Router::layer` or `route_layer`. In layers around the whole service, all requests share the counter of requests
/// that matched no route.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// // 60 requests per minute for each client and route.
/// let policy = Policy::new("route", Quota::per_minute(60)).key((key::client_ip(), key::route()));
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async {}))
///     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
/// # let _ = app;
/// ```
#[must_use]
pub fn route() -> impl KeyExtractor + Copy + fmt::Debug {
    Route
}

impl KeyExtractor for Route {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Key(KIND.key(template(parts).as_bytes())))
    }

    fn info(&self) -> KeyInfo {
        let info = KeyInfo::new("route").shared().unforgeable();
        KeyInfo { needs_route: true, ..info }
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let text = str::from_utf8(value).ok()?;
        (is_template(text) || text == UNMATCHED).then(|| KIND.key(normal(text).as_bytes()))
    }
}

pub(super) fn template(parts: &Parts) -> &str {
    matched(parts).unwrap_or(UNMATCHED)
}

pub(super) fn param_value<'a>(choices: &'a Choices, name: &str, parts: &'a Parts) -> Value<'a> {
    let value = choices.pick.pick(values(parts, name).into_iter())?;
    value.map(|text| text.map(|text| choices.form(bytes(text))).ok_or(Ambiguous)).transpose()
}

/// Decoded. `None` is not UTF-8.
type Values<'a> = SmallVec<[Option<Cow<'a, str>>; 1]>;

fn values<'a>(parts: &'a Parts, name: &str) -> Values<'a> {
    // A nested service, or the fallback of a nested router, has parameters of its prefix and no route.
    let Some(template) = parts.extensions.get::<MatchedPath>() else { return values_of_router(parts, name) };
    // The template belongs to the outermost router, but nested routers see a shortened path.
    let whole = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |OriginalUri(uri)| uri.path());
    let found = if is_routed(whole, parts) { captures(template.as_str(), whole, name) } else { None };
    match found {
        Some(found) => found.into_iter().map(|raw| percent_decode_str(raw).decode_utf8().ok()).collect(),
        None => values_of_router(parts, name),
    }
}

fn is_routed(whole: &str, parts: &Parts) -> bool {
    let path = parts.uri.path();
    let is_nested = |prefix| {
        let nest = parts.extensions.get::<NestedPath>();
        nest.is_some_and(|nest| captures(nest.as_str(), prefix, "").is_some())
    };
    path == whole || whole.strip_suffix(path).is_some_and(is_nested)
}

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

fn values_of_router<'a>(parts: &'a Parts, name: &str) -> Values<'a> {
    let mut of_router = http::Request::new(()).into_parts().0;
    of_router.extensions = parts.extensions.clone();
    let params = pin!(RawPathParams::from_request_parts(&mut of_router, &()));
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => {
            let named = params.iter().filter(|(of, _)| *of == name);
            named.map(|(_, value)| Some(Cow::Owned(value.to_owned()))).collect()
        }
        // Without parameters, none has this name. Otherwise one of them is not UTF-8, and axum does not return which.
        Poll::Ready(Err(RawPathParamsRejection::MissingPathParams(_))) => Values::new(),
        _ => [None].into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_what_the_path_has_in_its_place_without_the_text_around_it() {
        for (template, path, values) in [
            ("/a/{x}/{id}/b", "/a/1/2/b", Some(&["2"][..])),
            ("/users/{other}", "/users/7", Some(&[])),
            ("/users/id", "/users/id", Some(&[])),
            ("/", "/", Some(&[])),
            ("/{id}/a/{id}", "/1/a/2", Some(&["1", "2"])),
            ("/files/{*id}", "/files/a/b/", Some(&["a/b/"])),
            ("/files/{*rest}", "/files/a", Some(&[])),
            ("/{{{id}", "/{7", Some(&["7"])),
            ("/{{id}}/{id}", "/{id}/7", Some(&["7"])),
            ("/users/{id}", "/users", None),
            ("/users/{id}", "/a/users/7", None),
            ("/users/{id}", "/users/7/b", None),
            ("/long{id}", "/é", None),
        ] {
            assert_eq!(captures(template, path, "id").as_deref(), values, "{template} {path}");
        }
    }
}
