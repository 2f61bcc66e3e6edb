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

/// How a key is made of its word in a file.
#[derive(Clone, Copy)]
enum Make {
    /// Of the word alone, knowing how the server tells clients.
    Word(fn(&Server) -> DynKey),
    /// Of the word alone; letters of either case may be the same.
    AnyCase(fn(Choices) -> DynKey),
    /// Of the word, a colon and the name of what holds the value.
    Named(fn(Range<usize>, &str) -> Result<DynKey, Fault>),
    /// The same, of something that a request may have several of: it may say which of them counts, and that
    /// letters of either case are the same.
    NamedAmong(fn(Range<usize>, &str, Choices) -> Result<DynKey, Fault>),
}

/// The keys by their words: all that a file can say.
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
    ("basic_user", Make::AnyCase(|choices| Arc::new(key::basic_user().read_as(|reading| choices.apply(reading))))),
    ("header", Make::NamedAmong(header)),
    ("cookie", Make::NamedAmong(cookie)),
    ("query", Make::NamedAmong(query)),
    #[cfg(feature = "axum")]
    ("path_param", Make::Named(path_param)),
];

impl Make {
    /// The key as a file says it.
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

fn find(span: Range<usize>, given: &str, server: &Server) -> Result<DynKey, Fault> {
    let (choices, text) = Choices::read(&span, given)?;
    let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
    let found = KEYS.iter().find(|(known, _)| *known == word).map(|(_, make)| *make);
    let Some(make) = found else { return Err(unknown(span, text)) };
    if !make.takes(choices) {
        return Err(Fault::at(span, no_choice(&make.form(word))));
    }
    match (make, name) {
        (Make::Word(make), None) => Ok(make(server)),
        (Make::AnyCase(make), None) => Ok(make(choices)),
        (Make::Word(_) | Make::AnyCase(_), Some(_)) => Err(unknown(span, text)),
        (Make::Named(make), name) => make(span, name.unwrap_or_default()),
        (Make::NamedAmong(make), name) => make(span, name.unwrap_or_default(), choices),
    }
}

/// Some of the keys, as a file says them.
fn forms(of: impl Fn(Make) -> bool) -> Vec<String> {
    KEYS.iter().filter(|(_, make)| of(*make)).map(|(word, make)| make.form(word)).collect()
}

fn unknown(span: Range<usize>, text: &str) -> Fault {
    Fault::at(span, format!("key {text:?} is unknown: give one of {}", forms(|_| true).join(", ")))
}

fn no_choice(form: &str) -> String {
    let among = forms(|make| matches!(make, Make::NamedAmong(_))).join(", ");
    let any_case = forms(|make| matches!(make, Make::AnyCase(_))).join(", ");
    format!("key {form:?} takes no such choice: {among} take first, last and ignore_case, and {any_case} ignore_case")
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
fn path_param(span: Range<usize>, name: &str) -> Result<DynKey, Fault> {
    if name.is_empty() || name.contains(['{', '}', '*', '/', ':']) {
        let message = format!("key path_param:NAME has {name:?} for a name: give one such as id, for /users/{{id}}");
        return Err(Fault::at(span, message));
    }
    Ok(Arc::new(key::path_param(name)))
}
