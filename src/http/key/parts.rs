use std::any::Any;

use http::request::Parts;

use super::authorization::{Bearer, token};
use super::extractor::Joined;
#[cfg(feature = "axum")]
use super::route::{Route, template};
use super::uri::{Host, Path, host_name, path_form};
use super::{KeyExtractor, ValueKey};
use crate::core::{Error, Key};
use crate::limiter::lookup::RawValues;

pub(crate) fn parts(key: &dyn KeyExtractor) -> Vec<&dyn KeyExtractor> {
    match (key as &dyn Any).downcast_ref() {
        Some(Joined { parts: joined }) => joined.iter().flat_map(|part| parts(&**part)).collect(),
        None => vec![key],
    }
}

pub(crate) fn key_of(key: &dyn KeyExtractor, values: &[impl AsRef<[u8]>]) -> Result<Key, Error> {
    let Some(kind) = key.info().kind else {
        return Err(Error::invalid(
            "this key comes from a closure, so its kind is not known: make it with Key::new, as the closure does",
        ));
    };
    let parts = parts(key);
    if values.len() != parts.len() {
        let (given, known) = (values.len(), parts.len());
        return Err(Error::invalid(format!("key \"{kind}\" is made of {known} values, and {given} were given")));
    }
    let keys = parts.iter().zip(values).map(|(part, value)| part.key_of(value.as_ref()));
    let joined = keys.reduce(|first, second| Some(first?.join(&second?))).flatten();
    joined.ok_or_else(|| Error::invalid(format!("key \"{kind}\" never has this value")))
}

/// Extractors of users return a [`Secret`](super::Secret) instead. Built-in extractors do not, because they run for
/// every request, and few requests have a lookup.
pub(crate) fn offer_raw_values(key: &dyn KeyExtractor, request: &Parts, offered: &mut RawValues) {
    for part in parts(key) {
        let part: &dyn Any = part;
        if let Some(key) = part.downcast_ref::<ValueKey>() {
            key.value(request).into_iter().flatten().for_each(|value| offered.push(value));
        } else if part.is::<Bearer>() {
            token(request).into_iter().flatten().for_each(|token| offered.push(token));
        } else if part.is::<Host>() {
            host_name(request).into_iter().flatten().for_each(|name| offered.push(&*name));
        } else if part.is::<Path>()
            && let Ok(path) = path_form(request.uri.path())
        {
            offered.push(&*path);
        }
        #[cfg(feature = "axum")]
        if part.is::<Route>() {
            offered.push(template(request));
        }
    }
}
