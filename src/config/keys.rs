//! Keys by the names they have in files.

use std::mem;
use std::sync::Arc;

use super::document::Field;
use super::server::Server;
use crate::Error;
use crate::http::key::reading::Reading;
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
type MakeOf = fn(Field<'_>, &str, Choices) -> Result<DynKey, Error>;

/// The keys that are a word, a colon and the name of what holds the value.
const WITH_NAME: &[(&str, MakeOf)] = &[
    ("header", header),
    ("cookie", cookie),
    ("query", query),
    #[cfg(feature = "axum")]
    ("path_param", path_param),
];

pub(super) fn read_key(given: Field<'_>, server: &Server) -> Result<DynKey, Error> {
    if given.as_text().is_some() {
        return find(given, server);
    }
    let names = given.as_list("key").ok_or_else(|| given.wrong("a key in quotes, or a list of keys"))?;
    if names.is_empty() || names.len() > MOST_JOINED {
        let message = format!("a list of {} keys is not allowed: give 1 to {MOST_JOINED}", names.len());
        return Err(given.error(message));
    }
    let keys = names.into_iter().map(|name| find(name, server)).collect::<Result<Vec<_>, _>>()?;
    let joined = keys.into_iter().reduce(|joined, key| Arc::new(joined.and(key)));
    Ok(joined.expect("the list is not empty"))
}

fn find(given: Field<'_>, server: &Server) -> Result<DynKey, Error> {
    let (choices, name) = Choices::read(given)?;
    if let Some((_, make)) = WORDS.iter().find(|(word, _)| *word == name) {
        return with_choices(given, name, choices, || make(server));
    }
    let (word, argument) = name.split_once(':').unwrap_or((name, ""));
    match WITH_NAME.iter().find(|(known, _)| *known == word) {
        Some((_, make)) => make(given, argument, choices),
        None => Err(given.error(format!("key {name:?} is unknown: give one of {}", known()))),
    }
}

fn known() -> String {
    let words = WORDS.iter().map(|(word, _)| (*word).to_owned());
    let others = WITH_NAME.iter().map(|(word, _)| format!("{word}:NAME"));
    words.chain(others).collect::<Vec<_>>().join(", ")
}

/// A key that is a word; only one of them takes a choice.
fn with_choices(
    given: Field<'_>,
    name: &str,
    choices: Choices,
    make: impl FnOnce() -> DynKey,
) -> Result<DynKey, Error> {
    match choices {
        Choices { pick: None, ignores_case: false } => Ok(make()),
        Choices { pick: None, .. } if name == BASIC_USER => {
            Ok(Arc::new(key::basic_user().read_as(|reading| choices.apply(reading))))
        }
        _ => Err(given.error(format!(
            "key {name:?} takes no such choice: header:NAME, cookie:NAME and query:NAME take first, last and \
             ignore_case, and {BASIC_USER} takes ignore_case"
        ))),
    }
}

fn header(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    let key = Header::new(given.header_name("key header:NAME", name)?);
    Ok(Arc::new(key.read_as(|reading| choices.apply(reading))))
}

/// A cookie's name is a token: <https://www.rfc-editor.org/rfc/rfc6265#section-4.1.1>.
fn cookie(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    let is_token = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte));
    if name.is_empty() || !is_token {
        let message = format!("key cookie:NAME has {name:?} for a name: give one such as cookie:session");
        return Err(given.error(message));
    }
    Ok(Arc::new(key::cookie(name).read_as(|reading| choices.apply(reading))))
}

fn query(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    if name.is_empty() {
        return Err(given.error("key query:NAME lacks the name: give one such as query:api_key"));
    }
    Ok(Arc::new(key::query(name).read_as(|reading| choices.apply(reading))))
}

#[cfg(feature = "axum")]
fn path_param(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    if name.is_empty() || name.contains(['{', '}', '*', '/', ':']) {
        let message = format!("key path_param:NAME has {name:?} for a name: give one such as id, for /users/{{id}}");
        return Err(given.error(message));
    }
    with_choices(given, "path_param:NAME", choices, || Arc::new(key::path_param(name)))
}

/// How a key is read, in words before it: `last:cookie:session`.
#[derive(Clone, Copy, Default)]
struct Choices {
    /// Which of several values counts.
    pick: Option<fn(Reading) -> Reading>,
    ignores_case: bool,
}

impl Choices {
    /// Reads the choices, and returns what is left of the text.
    fn read(given: Field<'_>) -> Result<(Self, &str), Error> {
        let (mut choices, text) = (Self::default(), given.text()?);
        let mut rest = text;
        while let Some((word, after)) = rest.split_once(':') {
            let is_second = match word {
                "first" => choices.pick.replace(Reading::first).is_some(),
                "last" => choices.pick.replace(Reading::last).is_some(),
                "ignore_case" => mem::replace(&mut choices.ignores_case, true),
                _ => break,
            };
            if is_second {
                let advice = "give first or last, and ignore_case, once each";
                return Err(given.error(format!("key {text:?} chooses twice: {advice}")));
            }
            rest = after;
        }
        Ok((choices, rest))
    }

    fn apply(self, reading: Reading) -> Reading {
        let reading = if let Some(pick) = self.pick { pick(reading) } else { reading };
        if self.ignores_case { reading.ignore_case() } else { reading }
    }
}
