//! A parameter of the route.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, MatchedPath, Path, RawPathParams};
use futures::FutureExt;
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate::key;

use super::queries::as_number;
use super::routed::AtHandler;
use super::{Choices, Kind, Spelling, app};

pub(super) fn kind() -> Kind {
    let id = || key::path_param("id");
    let app = |name, sees| app(name, sees, plain, [id()]);
    let apps = vec![
        app("Path<String>", |parts| extracted::<Path<String>>(parts).map(|Path(id)| id)),
        app("Path<HashMap>", map),
        app("Path<(String, String)>", |parts| {
            let is_second = !route(parts)?.starts_with("/n/");
            extracted::<Path<(String, String)>>(parts).filter(|_| is_second).map(|Path((_, id))| id)
        }),
        super::app("Path<u64>", number, plain, [id().normalize(as_number)]),
        super::app(
            "Path<HashMap> in lower case",
            |parts| Some(map(parts)?.to_ascii_lowercase()),
            plain,
            [id().ignore_case()],
        ),
        app("RawPathParams, the first", |parts| raw(parts).into_iter().next()),
        app("RawPathParams, the last", |parts| raw(parts).into_iter().next_back()),
        app("MatchedPath and Path", |parts| Some(format!("{} {}", route(parts)?, map(parts)?))),
    ];
    Kind { name: "path_param", spell, is_routed: true, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    const ROUTES: &[&str] = &["/u/", "/u/", "/u/", "/api/u/", "/o/acme/u/", "/n/1/u/", "/n/7/u/", "/f/", "/api/f/"];
    const IDS: &[&str] =
        &["7", "7", "7", "1", "07", "+7", "ada", "a da", "caf\u{e9}", "a%2Fb", "a/b", "", ".", "..", "%"];
    let id = choices.pick(IDS);
    let id = choices.encoded(id).replace(' ', "%20");
    let origin = choices.pick(&["", "", "", "http://acme"]);
    let end = choices.pick(&["", "", "", "", "?id=8", "/", "%", "%FF", "%00", ";v=1", "//"]);
    Spelling::get(format!("{origin}{}{id}{end}", choices.pick(ROUTES)))
}

fn plain(client: &str) -> Spelling {
    let id = client.rsplit(' ').next().unwrap_or_default();
    Spelling::get(format!("/u/{}", utf8_percent_encode(id, NON_ALPHANUMERIC)))
}

fn extracted<T: FromRequestParts<()>>(parts: &Parts) -> Option<T> {
    let AtHandler(parts, _) = parts.extensions.get()?;
    T::from_request_parts(&mut parts.clone(), &()).now_or_never()?.ok()
}

fn route(parts: &Parts) -> Option<String> {
    extracted::<MatchedPath>(parts).map(|route| route.as_str().to_owned())
}

fn map(parts: &Parts) -> Option<String> {
    extracted::<Path<HashMap<String, String>>>(parts)?.0.remove("id")
}

fn number(parts: &Parts) -> Option<String> {
    extracted::<Path<u64>>(parts).map(|Path(id)| id.to_string())
}

fn raw(parts: &Parts) -> Vec<String> {
    let params = extracted::<RawPathParams>(parts);
    let named = params.iter().flatten().filter(|(name, _)| *name == "id");
    named.map(|(_, value)| value.to_owned()).collect()
}
