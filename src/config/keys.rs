//! Keys by the names they have in files.
//!
//! The field `key` comes in, a word or a list of words; a key extractor goes out. The table [`KEYS`] has all keys of
//! files, so error messages that list the keys are made from it. Each word has a form ([`Make`]), which determines
//! whether a name follows it and which choices may precede it:
//!
//! `[first: | last:] [ignore_case:] WORD [:NAME]`
//!
//! The choices may be in either order, each once.

use std::mem;
use std::sync::Arc;

use super::document::Field;
use super::server::Server;
use crate::core::Error;
use crate::http::key;
use crate::http::key::{KeyExtractor, ValueKey};

/// A key of any kind, shared by the policies that have it.
pub(super) type DynKey = Arc<dyn KeyExtractor>;

/// Keys joined at most: each is one level of nesting.
const MOST_JOINED: usize = 8;

/// How a key is made from its word in a file.
#[derive(Clone, Copy)]
enum Make {
    /// From the word alone, and the server's settings for clients' addresses.
    Word(fn(&Server) -> DynKey),
    /// From the word alone; letters of either case may be the same.
    #[cfg_attr(not(feature = "basic-auth"), expect(dead_code, reason = "only names of users are such keys"))]
    AnyCase(fn(Choices) -> DynKey),
    /// From the word, a colon and the name of the field that has the value.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only axum has parameters of paths"))]
    Named(fn(Field<'_>, &str) -> Result<DynKey, Error>),
    /// As `Named`, for a field that a request may have several times: choices select which one counts, and whether
    /// letters of either case are equal.
    NamedAmong(fn(Field<'_>, &str, Choices) -> Result<DynKey, Error>),
}

/// The keys of files, by their words.
const KEYS: &[(&str, Make)] = &[
    #[cfg(feature = "axum")]
    ("client_ip", Make::Word(|server| Arc::new(server.client().clone()))),
    #[cfg(feature = "axum")]
    ("peer_ip", Make::Word(|_| Arc::new(key::peer_ip()))),
    #[cfg(feature = "axum")]
    ("route", Make::Word(|_| Arc::new(key::route()))),
    ("path", Make::Word(|_| Arc::new(key::path()))),
    ("method", Make::Word(|_| Arc::new(key::method()))),
    ("host", Make::Word(|_| Arc::new(key::host()))),
    ("global", Make::Word(|_| Arc::new(key::global()))),
    ("bearer", Make::Word(|_| Arc::new(key::bearer()))),
    #[cfg(feature = "basic-auth")]
    ("basic_user", Make::AnyCase(|choices| Arc::new(choices.apply(key::basic_user())))),
    ("header", Make::NamedAmong(header)),
    ("cookie", Make::NamedAmong(cookie)),
    #[cfg(feature = "query")]
    ("query", Make::NamedAmong(query)),
    #[cfg(feature = "axum")]
    ("path_param", Make::Named(path_param)),
];

/// The keys that this build lacks, each with the feature that it needs.
const LACKING: &[(&str, &str)] = &[
    #[cfg(not(feature = "axum"))]
    ("client_ip", "axum"),
    #[cfg(not(feature = "axum"))]
    ("peer_ip", "axum"),
    #[cfg(not(feature = "axum"))]
    ("route", "axum"),
    #[cfg(not(feature = "basic-auth"))]
    ("basic_user", "basic-auth"),
    #[cfg(not(feature = "query"))]
    ("query", "query"),
    #[cfg(not(feature = "axum"))]
    ("path_param", "axum"),
];

impl Make {
    /// The key as it is in a file.
    fn form(self, word: &str) -> String {
        match self {
            Self::Word(_) | Self::AnyCase(_) => word.to_owned(),
            Self::Named(_) | Self::NamedAmong(_) => format!("{word}:NAME"),
        }
    }

    /// Whether it can be read as a file chooses.
    fn takes(self, choices: Choices) -> bool {
        match self {
            Self::Word(_) | Self::Named(_) => choices.is_none(),
            Self::AnyCase(_) => !choices.picks(),
            Self::NamedAmong(_) => true,
        }
    }
}

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

/// Returns the key of one word, with its choices and name.
fn find(given: Field<'_>, server: &Server) -> Result<DynKey, Error> {
    let (choices, text) = Choices::read(given)?;
    let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
    let found = KEYS.iter().find(|(known, _)| *known == word).map(|(_, make)| *make);
    let Some(make) = found else { return Err(lacking(given, word).unwrap_or_else(|| unknown(given, text))) };
    if !make.takes(choices) {
        return Err(given.error(no_choice(&make.form(word))));
    }
    match (make, name) {
        (Make::Word(make), None) => Ok(make(server)),
        (Make::AnyCase(make), None) => Ok(make(choices)),
        (Make::Word(_) | Make::AnyCase(_), Some(_)) => Err(unknown(given, text)),
        (Make::Named(make), name) => make(given, name.unwrap_or_default()),
        (Make::NamedAmong(make), name) => make(given, name.unwrap_or_default(), choices),
    }
}

/// Some of the keys, as they are in files.
fn forms(of: impl Fn(Make) -> bool) -> Vec<String> {
    KEYS.iter().filter(|(_, make)| of(*make)).map(|(word, make)| make.form(word)).collect()
}

/// The error of a key that needs a feature which is off; `None` for any other word.
fn lacking(given: Field<'_>, word: &str) -> Option<Error> {
    let (_, feature) = LACKING.iter().find(|(known, _)| *known == word)?;
    Some(given.error(format!("key {word:?} needs the feature {feature}: turn it on, or give another key")))
}

/// The error of a word that no key has.
fn unknown(given: Field<'_>, text: &str) -> Error {
    given.error(format!("key {text:?} is unknown: give one of {}", forms(|_| true).join(", ")))
}

/// The error of a choice before a key that takes no such choice; `form` is how the key is written.
fn no_choice(form: &str) -> String {
    let among = forms(|make| matches!(make, Make::NamedAmong(_))).join(", ");
    let any_case = forms(|make| matches!(make, Make::AnyCase(_))).join(", ");
    let and = if any_case.is_empty() { String::new() } else { format!(", and {any_case} ignore_case") };
    format!("key {form:?} takes no such choice: {among} take first, last and ignore_case{and}")
}

/// Makes a key of a header's value.
fn header(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    Ok(Arc::new(choices.apply(ValueKey::header(given.header_name("key header:NAME", name)?))))
}

/// A cookie's name is a token: <https://www.rfc-editor.org/rfc/rfc6265#section-4.1.1>.
fn cookie(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    let is_token = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte));
    if name.is_empty() || !is_token {
        let message = format!("key cookie:NAME has {name:?} for a name: give one such as cookie:session");
        return Err(given.error(message));
    }
    Ok(Arc::new(choices.apply(key::cookie(name))))
}

/// Makes a key of a query parameter's value; its name must not be empty.
#[cfg(feature = "query")]
fn query(given: Field<'_>, name: &str, choices: Choices) -> Result<DynKey, Error> {
    if name.is_empty() {
        return Err(given.error("key query:NAME lacks the name: give one such as query:api_key"));
    }
    Ok(Arc::new(choices.apply(key::query(name))))
}

/// Makes a key of a part of the path, by its name in the route template.
#[cfg(feature = "axum")]
fn path_param(given: Field<'_>, name: &str) -> Result<DynKey, Error> {
    if name.is_empty() || name.contains(['{', '}', '*', '/', ':']) {
        let message = format!("key path_param:NAME has {name:?} for a name: give one such as id, for /users/{{id}}");
        return Err(given.error(message));
    }
    Ok(Arc::new(key::path_param(name)))
}

/// How a key is read, in words before it: `last:cookie:session`.
#[derive(Clone, Copy, Default)]
struct Choices {
    /// Which of several values counts.
    pick: Option<fn(ValueKey) -> ValueKey>,
    /// Whether letters of either case are the same.
    ignores_case: bool,
}

impl Choices {
    /// Reads the choices, and returns what is left of the text.
    fn read(given: Field<'_>) -> Result<(Self, &str), Error> {
        let (mut choices, text) = (Self::default(), given.text()?);
        let mut rest = text;
        while let Some((word, after)) = rest.split_once(':') {
            let is_second = match word {
                "first" => choices.pick.replace(ValueKey::first).is_some(),
                "last" => choices.pick.replace(ValueKey::last).is_some(),
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

    /// Returns whether nothing was chosen.
    fn is_none(self) -> bool {
        self.pick.is_none() && !self.ignores_case
    }

    /// Returns whether one of several values was chosen.
    fn picks(self) -> bool {
        self.pick.is_some()
    }

    /// Applies the choices to how a key is read.
    fn apply(self, key: ValueKey) -> ValueKey {
        let key = if let Some(pick) = self.pick { pick(key) } else { key };
        if self.ignores_case { key.ignore_case() } else { key }
    }
}

#[cfg(all(test, not(all(feature = "axum", feature = "basic-auth", feature = "query"))))]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_key_whose_feature_is_off_is_an_error_that_names_the_feature() {
        for (word, feature) in LACKING {
            for key in [(*word).to_owned(), format!("{word}:id"), format!("last:ignore_case:{word}:id")] {
                let text =
                    format!("[[policy]]\nname = \"a\"\nlimit = 1\nwindow = \"1s\"\nkey = [\"global\", \"{key}\"]\n");
                let error = Config::from_toml(&text).expect_err("the key is not in this build");
                let named = format!("key {word:?} needs the feature {feature}: turn it on");
                assert!(error.is_invalid() && error.to_string().contains(&named), "{error}");
            }
        }
        assert!(!LACKING.is_empty() && LACKING.iter().all(|(word, _)| KEYS.iter().all(|(known, _)| known != word)));
    }
}
