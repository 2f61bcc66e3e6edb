//! Keys by the names they have in files.

use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;
use toml::Spanned;

use super::document::KeyNames;
use super::fault::Fault;
use crate::key::{self, Header, KeyExtractor};

type DynKey = Arc<dyn KeyExtractor>;

/// Keys joined at most: each is one level of nesting.
const MOST_JOINED: usize = 8;

/// Makes a key.
type Make = fn() -> DynKey;

/// The keys that are a word.
const WORDS: &[(&str, Make)] = &[
    #[cfg(feature = "axum")]
    ("peer_ip", || Arc::new(key::peer_ip())),
    #[cfg(feature = "axum")]
    ("route", || Arc::new(key::route())),
    ("path", || Arc::new(key::path())),
    ("global", || Arc::new(key::global())),
];

/// Makes a key of the text after the colon.
type MakeOf = fn(Range<usize>, &str) -> Result<DynKey, Fault>;

/// The keys that are a word, a colon and an argument: the word, the argument's name, the key.
const WITH_ARGUMENT: &[(&str, &str, MakeOf)] = &[("header", "NAME", header)];

pub(super) fn read_key(given: &Spanned<KeyNames>) -> Result<DynKey, Fault> {
    match given.get_ref() {
        KeyNames::One(name) => find(given.span(), name),
        KeyNames::Joined(names) => join(given.span(), names),
    }
}

fn join(span: Range<usize>, names: &[Spanned<String>]) -> Result<DynKey, Fault> {
    if names.is_empty() || names.len() > MOST_JOINED {
        let message = format!("a list of {} keys is not allowed: give 1 to {MOST_JOINED}", names.len());
        return Err(Fault::at(span, message));
    }
    let keys = names.iter().map(|name| find(name.span(), name.get_ref()));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let joined = keys.into_iter().reduce(|joined, key| Arc::new(joined.and(key)));
    Ok(joined.expect("the list is not empty"))
}

fn find(span: Range<usize>, name: &str) -> Result<DynKey, Fault> {
    if let Some((_, make)) = WORDS.iter().find(|(word, _)| *word == name) {
        return Ok(make());
    }
    let (word, argument) = name.split_once(':').unwrap_or((name, ""));
    match WITH_ARGUMENT.iter().find(|(known, ..)| *known == word) {
        Some((.., make)) => make(span, argument),
        None => Err(Fault::at(span, format!("key {name:?} is unknown: give one of {}", known()))),
    }
}

fn header(span: Range<usize>, name: &str) -> Result<DynKey, Fault> {
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
        let message = format!("key header:NAME has {name:?} for a name: give one such as header:x-api-key");
        Fault::at(span, message).caused_by(error)
    })?;
    Ok(Arc::new(Header::new(header)))
}

fn known() -> String {
    let words = WORDS.iter().map(|(word, _)| (*word).to_owned());
    let others = WITH_ARGUMENT.iter().map(|(word, argument, _)| format!("{word}:{argument}"));
    words.chain(others).collect::<Vec<_>>().join(", ")
}
