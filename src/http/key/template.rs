//! Route templates of axum 0.8: `/users/{id}`, `/files/{*rest}`.
//!
//! Policies that name routes, keys of routes and keys of parameters all parse templates here, by the rules of axum's
//! router. Templates that the router rejects are rejected here too, so a route that can never match is found when the
//! layer is built.

#[cfg(feature = "axum")]
use axum::extract::MatchedPath;
use http::request::Parts;
use http::uri::PathAndQuery;

#[cfg(feature = "axum")]
pub(crate) fn matched(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<MatchedPath>().map(|template| normal(template.as_str()))
}

#[cfg(not(feature = "axum"))]
pub(crate) fn matched(_: &Parts) -> Option<&str> {
    None
}

/// Drops the second slash at the end, because the root of a nested service has one or two, and is one route.
pub(crate) fn normal(mut template: &str) -> &str {
    while let Some(shorter) = template.strip_suffix('/').filter(|shorter| shorter.ends_with('/')) {
        template = shorter;
    }
    template
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Literal text, up to a parameter or through an escaped brace.
    Text(&'a str),
    /// The name in `{name}`, which takes a segment or the end of one.
    Parameter(&'a str),
    /// The name in `{*name}`, which takes the rest of the path.
    Rest(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Ends after the first error.
pub(super) fn pieces(template: &str) -> impl Iterator<Item = Result<Piece<'_>, Malformed>> {
    let mut rest = Some(template);
    std::iter::from_fn(move || {
        let text = rest.take().filter(|text| !text.is_empty())?;
        Some(piece(text).map(|(piece, after)| {
            rest = Some(after);
            piece
        }))
    })
}

pub(crate) fn is_template(template: &str) -> bool {
    let old = |segment: &str| segment.starts_with([':', '*']);
    let fits = |piece| match piece {
        Ok(Piece::Text(text)) => is_in_paths(text),
        Ok(_) => true,
        Err(Malformed) => false,
    };
    template.starts_with('/') && !template.split('/').any(old) && pieces(template).all(fits)
}

fn is_in_paths(text: &str) -> bool {
    let path = PathAndQuery::try_from(format!("/{text}"));
    path.is_ok_and(|path| path.path()[1..] == *text && path.query().is_none())
}

fn piece(text: &str) -> Result<(Piece<'_>, &str), Malformed> {
    let Some(at) = text.find(['{', '}']) else { return Ok((Piece::Text(text), "")) };
    let (brace, after) = text[at..].split_at(1);
    if let Some(after) = after.strip_prefix(brace) {
        return Ok((Piece::Text(&text[..=at]), after));
    }
    match (at, brace) {
        (0, "{") => parameter(after),
        (0, _) => Err(Malformed),
        _ => Ok((Piece::Text(&text[..at]), &text[at..])),
    }
}

fn parameter(text: &str) -> Result<(Piece<'_>, &str), Malformed> {
    let (name, after) = text.split_once('}').ok_or(Malformed)?;
    let (name, takes_rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
    let ends = if takes_rest { after.is_empty() } else { after.is_empty() || after.starts_with('/') };
    if name.is_empty() || name.contains(['{', '*', '/']) || !ends {
        return Err(Malformed);
    }
    Ok((if takes_rest { Piece::Rest(name) } else { Piece::Parameter(name) }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_axums_router_takes_is_one_and_no_other() {
        let taken = "/ /a /{id} /a/{id}/b /{*rest} /v{id} /{{id}} /{{{id} // /a/ /é /a:b";
        let refused =
            "a :id /:id /a/:id /*rest /a/* /{ /} /{id /id} /{} /{*} /{id}.png /{a}{b} /{*rest}/a /{a/b} /{a*} /{id}}";
        let routes = |template: &str| {
            let route = || axum::Router::<()>::new().route(template, axum::routing::get(|| async {}));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(route()))).is_ok()
        };
        for template in taken.split(' ') {
            assert!(is_template(template) && routes(template), "{template}");
        }
        for template in refused.split(' ').chain([""]) {
            assert!(!is_template(template) && !routes(template), "{template}");
        }
        for never in ["/a b", "/a?b", "/a#b", "/a\n"] {
            assert!(!is_template(never), "no path has this: {never:?}");
        }
    }
}
