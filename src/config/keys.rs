//! Keys by the names they have in files.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;

use super::Server;
use super::choices::Choices;
use super::fault::Fault;
use super::header::header_name;
use super::lists::OneOrMany;
use crate::http::key::{self, Header, KeyExtractor};

pub(super) type DynKey = Arc<dyn KeyExtractor>;

/// Keys joined at most: each is one level of nesting.
const MOST_JOINED: usize = 8;

/// The word that takes a choice.
const BASIC_USER: &str = "basic_user";

/// Makes a key, knowing how the server tells clients.
type Make = fn(&Server) -> DynKey;

/// The keys that are a word.
const WORDS: &[(&str, Make)] = &[
    #[cfg(feature = "axum")]
    ("client_ip", |server| Arc::new(server.client().clone())),
    #[cfg(feature = "axum")]
    ("peer_ip", |_| Arc::new(key::peer_ip())),
    #[cfg(feature = "axum")]
    ("route", |_| Arc::new(key::route())),
    ("path", |_| Arc::new(key::path())),
    ("method", |_| Arc::new(key::method())),
    ("host", |_| Arc::new(key::host())),
    ("global", |_| Arc::new(key::global())),
    ("bearer", |_| Arc::new(key::bearer())),
    (BASIC_USER, |_| Arc::new(key::basic_user())),
];

/// Makes a key of the text after the colon, as it is chosen to be read.
type MakeOf = fn(Range<usize>, &str, Choices) -> Result<DynKey, Fault>;

/// The keys that are a word, a colon and the name of what holds the value.
const WITH_NAME: &[(&str, MakeOf)] = &[
    ("header", header),
    ("cookie", cookie),
    ("query", query),
    #[cfg(feature = "axum")]
    ("path_param", path_param),
];

pub(super) fn read_key(given: &Spanned<OneOrMany<String>>, server: &Server) -> Result<DynKey, Fault> {
    match given.get_ref() {
        OneOrMany::One(name) => find(given.span(), name, server),
        OneOrMany::Many(names) => join(given.span(), names, server),
    }
}

fn join(span: Range<usize>, names: &[Spanned<String>], server: &Server) -> Result<DynKey, Fault> {
    if names.is_empty() || names.len() > MOST_JOINED {
        let message = format!("a list of {} keys is not allowed: give 1 to {MOST_JOINED}", names.len());
        return Err(Fault::at(span, message));
    }
    let keys = names.iter().map(|name| find(name.span(), name.get_ref(), server));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let joined = keys.into_iter().reduce(|joined, key| Arc::new(joined.and(key)));
    Ok(joined.expect("the list is not empty"))
}

fn find(span: Range<usize>, name: &str, server: &Server) -> Result<DynKey, Fault> {
    let (choices, name) = Choices::read(&span, name)?;
    if let Some((_, make)) = WORDS.iter().find(|(word, _)| *word == name) {
        return with_choices(span, name, choices, || make(server));
    }
    let (word, argument) = name.split_once(':').unwrap_or((name, ""));
    match WITH_NAME.iter().find(|(known, _)| *known == word) {
        Some((_, make)) => make(span, argument, choices),
        None => Err(Fault::at(span, format!("key {name:?} is unknown: give one of {}", known()))),
    }
}

/// A key that is a word; only one of them takes a choice.
fn with_choices(
    span: Range<usize>,
    name: &str,
    choices: Choices,
    make: impl FnOnce() -> DynKey,
) -> Result<DynKey, Fault> {
    if choices.is_none() {
        return Ok(make());
    }
    if name == BASIC_USER && !choices.picks() {
        return Ok(Arc::new(key::basic_user().read_as(|reading| choices.apply(reading))));
    }
    Err(Fault::at(span, no_choice(name)))
}

fn no_choice(name: &str) -> String {
    format!(
        "key {name:?} takes no such choice: header:NAME, cookie:NAME and query:NAME take first, last and ignore_case, \
         and {BASIC_USER} takes ignore_case"
    )
}

fn header(span: Range<usize>, name: &str, choices: Choices) -> Result<DynKey, Fault> {
    let key = Header::new(header_name("key header:NAME", span, name)?);
    Ok(Arc::new(key.read_as(|reading| choices.apply(reading))))
}

/// A cookie's name is a token: <https://www.rfc-editor.org/rfc/rfc6265#section-4.1.1>.
fn cookie(span: Range<usize>, name: &str, choices: Choices) -> Result<DynKey, Fault> {
    let is_token = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte));
    if name.is_empty() || !is_token {
        let message = format!("key cookie:NAME has {name:?} for a name: give one such as cookie:session");
        return Err(Fault::at(span, message));
    }
    Ok(Arc::new(key::cookie(name).read_as(|reading| choices.apply(reading))))
}

fn query(span: Range<usize>, name: &str, choices: Choices) -> Result<DynKey, Fault> {
    if name.is_empty() {
        return Err(Fault::at(span, "key query:NAME lacks the name: give one such as query:api_key"));
    }
    Ok(Arc::new(key::query(name).read_as(|reading| choices.apply(reading))))
}

#[cfg(feature = "axum")]
fn path_param(span: Range<usize>, name: &str, choices: Choices) -> Result<DynKey, Fault> {
    if name.is_empty() || name.contains(['{', '}', '*', '/', ':']) {
        let message = format!("key path_param:NAME has {name:?} for a name: give one such as id, for /users/{{id}}");
        return Err(Fault::at(span, message));
    }
    with_choices(span, "path_param:NAME", choices, || Arc::new(key::path_param(name)))
}

fn known() -> String {
    let words = WORDS.iter().map(|(word, _)| (*word).to_owned());
    let others = WITH_NAME.iter().map(|(word, _)| format!("{word}:NAME"));
    words.chain(others).collect::<Vec<_>>().join(", ")
}
