//! Errors with their position in a file, on one line: `FILE line N: MESSAGE (column N)`, without `FILE` if only the
//! text is known. Lines and columns begin at 1, and columns count characters.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use tollgate::Error;
use toml::Spanned;

const WORDS: &[(&str, &str)] = &[
    ("policy: invalid type: map, expected a sequence", "policy: expected a list: write [[policy]]"),
    ("expected u64", "expected a whole number without sign or quotes, at most 18446744073709551615"),
    ("expected a nonzero u32", "expected a whole number from 1 to 4294967295"),
    ("expected f64", "expected a number such as 0.2 or 2, without quotes"),
    ("expected a boolean", "expected true or false, without quotes"),
    ("expected a string", "expected a string, in quotes"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected a table"),
];

#[derive(Debug)]
pub struct Fault(pub Range<usize>, pub String);

impl Fault {
    pub fn new<T>(field: &Spanned<T>, message: impl Display) -> Self {
        Self(field.span(), message.to_string())
    }

    pub(super) fn in_tier<T>(self, name: &str, limit: &Spanned<T>) -> Self {
        Self(limit.span(), format!("tier {name:?}: {}", self.1))
    }
}

/// Begins the message with the names of tables and option: `policy.limit: ...`.
impl From<toml::de::Error> for Fault {
    fn from(mut error: toml::de::Error) -> Self {
        // With its input, the message would have the line instead of the names.
        error.set_input(None);
        let shown = error.to_string();
        let message = match shown.trim_end().trim_end_matches('`').rsplit_once("\nin `") {
            Some((message, names)) => format!("{names}: {message}"),
            None => shown,
        };
        let message = WORDS.iter().fold(message, |message, (of_serde, word)| message.replace(of_serde, word));
        Self(error.span().unwrap_or_default(), message.trim_end().to_owned())
    }
}

pub trait At<T> {
    fn at<F>(self, field: &Spanned<F>) -> Result<T, Fault>;
}

impl<T, E: Display> At<T> for Result<T, E> {
    fn at<F>(self, field: &Spanned<F>) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(field, error))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub name: Option<&'a str>,
    pub text: &'a str,
}

impl Source<'_> {
    pub fn of_file<T>(path: &Path, read: impl FnOnce(&Source<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            let text = format!("cannot read the config file {name}: use the path of a TOML file");
            Error::invalid(one_line(&text)).with_source(error)
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let source = Source { name: Some(&name), text: &text };
        match str::from_utf8(&bytes) {
            Ok(_) => read(&source),
            Err(error) => {
                let message = "the file is not UTF-8 text: save it as UTF-8".to_owned();
                Err(source.error(&Fault(error.valid_up_to()..bytes.len(), message)).with_source(error))
            }
        }
    }

    pub fn error(&self, Fault(place, message): &Fault) -> Error {
        let name = self.name.map(|name| format!("{name} ")).unwrap_or_default();
        let (line, column) = self.position(place);
        Error::invalid(one_line(&format!("{name}line {line}: {message} (column {column})")))
    }

    /// Line and column. The end of the file belongs to its last line.
    pub fn position(&self, place: &Range<usize>) -> (usize, usize) {
        let text = self.text.as_bytes();
        let before = &text[..place.start.min(text.trim_ascii_end().len())];
        let line = before.split(|byte| *byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let characters = String::from_utf8_lossy(&before[start..]);
        // A byte order mark is no character of the line.
        (line, characters.trim_start_matches('\u{feff}').chars().count() + 1)
    }
}

fn one_line(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() { character.escape_default().to_string() } else { character.into() }
    };
    text.chars().map(shown).collect()
}
